// Sizes, ages and times in the words RiseML's users know. Pure: "now" is always an argument.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dtrain::cli {

std::string human_size(uint64_t bytes);  // "5.7 MB": one decimal, steps of 1024; "812 B"
std::string human_memory(uint64_t bytes);  // "512 MiB", "23.5 GiB": as `mem` is written
std::string human_age(uint64_t age_ms);  // "just now", "1 second", "5 minutes", "3 hours", "2 days"
std::string human_duration(uint64_t ms);                     // "42 seconds", "3m 4s", "26h 0m 9s"; rounded
std::string human_count(uint64_t n, std::string_view noun);  // "1 file", "3 files"

// "just now" or "5 minutes ago"; empty when `then` is 0 (it has not happened).
std::string human_ago(uint64_t then_unix_ms, uint64_t now_unix_ms);

std::string iso_time(uint64_t unix_ms);    // "2017-08-31T07:23:46Z"
std::string iso_time_ms(uint64_t unix_ms); // "2017-08-31T07:23:46.999Z"
std::string clock_time(uint64_t unix_ms);  // "09:23:46", in the zone of this process

// The reason says no more than the state beside it: "killed" of KILLED.
bool says_state(std::string_view reason, std::string_view state);
// "● RUNNING": RiseML's symbol before a state word.
std::string state_cell(std::string_view state);


}  // namespace dtrain::cli
