// SQLite as the store uses it: a database, statements, transactions.
//
// Errors say what is wrong with the disk: ResourceExhausted (full, or it can't be read or written),
// DataLoss (damaged), PermissionDenied. Thread: one at a time. Only sqlite.cc includes sqlite3.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "schema/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace dtrain::daemon {

class Database {
 public:
  // Creates the file (mode 0600) when absent. What was committed survives kill -9 and power loss.
  static Result<Database> open(const std::filesystem::path& path);

  // One statement or several, without parameters; rows are ignored.
  Status execute(const char* sql);
  int64_t last_inserted_row() const;
  Error error(std::string_view what) const;

 private:
  friend class Statement;
  struct Close {
    void operator()(sqlite3* database) const;
  };
  Database(std::string path, sqlite3* database) : path_(std::move(path)), database_(database) {}

  std::string path_;  // for errors: SQLite itself forgets it where the file can't be opened
  std::unique_ptr<sqlite3, Close> database_;
};

// A prepared one. Columns count from 0; parameters are bound in their order.
class Statement {
 public:
  Statement(Database& database, const char* sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(int64_t value);
  Statement& bind_text(std::string_view value);
  Statement& bind_blob(std::string_view value);

  // True: a row is there to read. False: done.
  Result<bool> step();
  // For other parameters.
  void reset();
  int64_t integer(int column) const;
  std::string bytes(int column) const;

 private:
  Database& database_;
  sqlite3_stmt* statement_ = nullptr;
  int status_;
  int bound_ = 0;
};

// Rolls back unless committed, so that an early return leaves nothing half done.
class Transaction {
 public:
  explicit Transaction(Database& database) : database_(database) {}
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  Status begin();
  Status commit();

 private:
  Database& database_;
  bool open_ = false;
};

}  // namespace dtrain::daemon
