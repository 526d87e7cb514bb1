#include "runner/environments.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <vector>

#include "runner/ask_program.h"
#include "runner/deletion.h"
#include "schema/random_id.h"
#include "schema/shell_words.h"
#include "schema/small_file.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

constexpr const char* kComplete = ".complete";
constexpr const char* kBytes = ".bytes";
constexpr const char* kContainer = "container";
constexpr const char* kPutAway = ".put-away";

// Finds that one is there, or begins one below $folder.
constexpr const char* kBegin = R"sh(
discard() {
  chmod -R u+rwX "$1" 2> /dev/null || true
  rm -rf "$1"
}
go_on() {
  exec 9>&-
  if [ "$next" ]; then exec /bin/sh "$next"; fi
  exit 0
}
mkdir -p "$folder"
exec 9> "$folder/lock"
if ! flock -n 9; then
  echo 'Another build of the same environment is under way: waiting for it'
  flock 9
fi
last=0
for made in "$folder"/[0-9]*; do
  if [ ! -d "$made" ]; then continue; fi
  if [ ! -e "$made/.complete" ]; then discard "$made"; continue; fi
  if [ "$rebuild" ]; then
    [ "$(cat "$made/.complete")" = "$rebuild" ] && is_made=yes || is_made=''
  else
    [ -z "$expected" ] || [ "$(cat "$made/image-id")" = "$expected" ] && is_made=yes || is_made=''
  fi
  if [ "$is_made" ]; then
    echo "It is made: $made"
    go_on
  fi
  if [ "${made##*/}" -gt "$last" ]; then last=${made##*/}; fi
done
if [ -n "$submission" ] && [ -e "$folder/failed" ]; then
  # A power cut may have left nothing of it.
  { read -r whose; read -r status; read -r what; } < "$folder/failed" || whose=''
  if [ "$whose" = "$submission" ]; then
    echo "$what"
    exit "$status"
  fi
fi
environment=$folder/$((last + 1))

step=''
done=''
container=''
requirement=''
# The version that the experiment asks for may be too old, or too new, for this python.
say_versions() {
  name=${requirement%%==*}
  versions=$(pip install "$name==0" 2>&1 | sed -n 's/.*(from versions: \([^)]*\)).*/\1/p' | tr -d ' ' | tr ',' '\n' | grep '^[0-9.]*$') || return
  if printf '%s\n' "$versions" | grep -q -x -F "${requirement#*==}"; then return; fi
  # Keras 3 knows no parameter servers.
  if [ "$has_servers" ]; then versions=$(printf '%s\n' "$versions" | awk -F. '$1 < 2 || ($1 == 2 && $2 < 16)'); fi
  newest=$(printf '%s\n' "$versions" | tail -n 1)
  if [ "$newest" ]; then echo "For this python there is $name $newest: dtrain train --set train.tensorflow.version=$newest"; fi
}
on_end() {
  status=$?
  if [ "$container" ]; then "$fetcher" rm -f -v "$container" > /dev/null 2>&1 && rm -f "$folder/container" || true; fi
  if [ "$done" ]; then return; fi
  if [ "$status" = 0 ]; then
    echo "A step ended the build before its end: $step"
    exit 1
  fi
  echo "Failed with exit code $status: $step"
  # Of a signal the recipe need not be the cause.
  if [ "$status" -lt 128 ]; then
    if printf '%s\n%s\nThe same build has failed for %s with exit code %s: %s\n' \
      "$submission" "$status" "$replica" "$status" "$step" > "$folder/failed.new"; then
      mv "$folder/failed.new" "$folder/failed" || true
    fi
  fi
  if [ "$requirement" ]; then say_versions || true; fi
  case ${python:+$step} in
    *pip\ *|*uv\ *) "$python" -c "$ask_index" || true ;;
  esac
  case $step in
    podman\ pull\ *|docker\ pull\ *) echo 'Without the image, by what the hosts have: dtrain train --no-image' ;;
  esac
}
trap on_end EXIT
trap 'exit 143' TERM INT HUP
begin() {
  step=$1
  echo "+ $1"
}

)sh";

// Has its programs found first.
constexpr const char* kMakePython = R"sh(
begin "$python -m venv"
"$python" -m venv "$environment"
VIRTUAL_ENV=$environment
PATH=$environment/bin:$PATH
PIP_DISABLE_PIP_VERSION_CHECK=1
PIP_NO_INPUT=1
PIP_PROGRESS_BAR=off
UV_NO_PROGRESS=1
export VIRTUAL_ENV PATH PIP_DISABLE_PIP_VERSION_CHECK PIP_NO_INPUT PIP_PROGRESS_BAR UV_NO_PROGRESS
unset PIP_USER PYTHONHOME
)sh";

// An image's files by whoever fetches images: a container is made of it, which never runs, and its files taken out.
constexpr const char* kMakeImage = R"sh(
# What is made here is nowhere else.
case $image in localhost/*) asks_anew='' ;; *) asks_anew=$rebuild ;; esac
if [ -z "$image_id" ] || [ "$asks_anew" ]; then
  begin "${fetcher##*/} pull $image"
  case $fetcher in
    */podman) pulled=$("$fetcher" pull "$image") && image_id=${pulled##*
} ;;
    *) "$fetcher" pull "$image" && image_id=$("$fetcher" image inspect --format '{{.Id}}' "$image") ;;
  esac || if [ "$image_id" ]; then echo 'It goes on with that which is here'; else false; fi
fi
mkdir -p "$environment/root"
begin "${fetcher##*/} export $shown"
container=dtrain-$(printf %s "$folder" | cksum | tr ' ' -)
# For whoever finds it, should nothing here get to its end.
printf '%s\n%s\n' "$fetcher" "$container" > "$folder/container"
"$fetcher" rm -f -v "$container" > /dev/null 2>&1 || true
"$fetcher" create --name "$container" "$image_id" /bin/true > /dev/null
# Devices are the host's. Who isn't root can be the owner only.
if [ "$(id -u)" = 0 ]; then owner=--same-owner; else owner=--no-same-owner; fi
{ "$fetcher" export "$container" || : > "$environment/broken"; } |
  tar -x -p --numeric-owner $owner --anchored --exclude='dev/*' --exclude='./dev/*' -C "$environment/root" -f -
if [ -e "$environment/broken" ]; then false; fi
"$fetcher" rm -f -v "$container" > /dev/null
rm -f "$folder/container"
container=''
if [ "$(id -u)" != 0 ]; then chmod -R u+rwX "$environment/root"; fi
"$fetcher" image inspect --format '{{json .Config}}' "$image_id" > "$environment/config.json"
printf %s "${archive_stamp:-$image_id}" > "$environment/image-id"
)sh";

// What a person wants to know when pip has failed: whether it was for want of an index.
constexpr const char* kAskIndex = R"py(
import os, subprocess, sys, urllib.error, urllib.request
def configured():
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if os.environ.get(name):
            return os.environ[name]
    said = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"],
                          capture_output=True, text=True).stdout.strip()
    return said or pips_own()
def pips_own():
    try:
        from pip._internal.models.index import PyPI
        return PyPI.simple_url
    except ImportError:
        sys.exit()
index = configured()
shown = index.rsplit("@", 1)[-1]
try:
    urllib.request.urlopen(index, timeout=10).close()
except urllib.error.HTTPError as error:
    if error.code not in (401, 403, 404):
        print("The package index", shown, "answers", error.code, error.reason)
    elif error.code != 404:
        print("The package index", shown, "refuses this host:", error.code, error.reason)
except Exception as error:
    print("The package index", shown, "can't be reached from this host:", getattr(error, "reason", error))
    print("Another one: `env: {PIP_INDEX_URL: ...}`; none at all: `pip install --no-index --find-links DIR`")
)py";

constexpr const char* kEnd = R"sh(
step=''
du -sk "$environment" 2> /dev/null | while read -r size rest; do
  echo $((size * 1024)) > "$environment/.bytes"
done
sync -f "$environment"
printf '%s' "$rebuild" > "$environment/.complete.new"
mv "$environment/.complete.new" "$environment/.complete"
sync -f "$environment"
done=yes
echo "Built $environment"
go_on
)sh";

// Two lines: the program that has it, and its name.
void remove_left_container(const fs::path& note) {
  const auto text = read_small_file(note);
  if (!text || !text->ends_with('\n')) return;
  constexpr int64_t kRemovesMs = 20'000;
  const size_t end = text->find('\n');
  const std::string name = text->substr(end + 1, text->size() - end - 2);
  const auto removed = ask_program({text->substr(0, end), "rm", "-f", "-v", name}, inherited_environment(own_process_environment()), kRemovesMs);
  if (!removed.ok() || !removed->succeeded) return;
  std::error_code error;
  fs::remove(note, error);
}

std::vector<fs::path> unused_environments(const fs::path& envs, const EnvironmentUse& use) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const fs::directory_entry& key : fs::directory_iterator(envs, error)) {
    if (key.path().filename() == kPutAway) continue;
    for (const fs::directory_entry& made : fs::directory_iterator(key.path(), error)) {
      if (!made.is_directory(error) || use.in_use.contains(made.path())) continue;
      if (use.building && !fs::exists(made.path() / kComplete, error)) continue;
      found.push_back(made.path());
    }
  }
  return found;
}

std::string step_of(const std::string& line) {
  return fmt::format("begin {}\n{}\n", shell_quoted(line), line);
}

// All of them in one shell, as they are elsewhere.
std::string steps_in_image(const std::vector<std::string>& install) {
  if (install.empty()) return "";
  std::string inside = "set -eu\n";
  for (const std::string& line : install) inside += fmt::format("echo {}\n{}\n", shell_quoted("+ " + line), line);
  return fmt::format("step='a step of install'\n\"$dtrain\" in-image \"$environment\" {}\n", shell_quoted(inside));
}

}  // namespace

std::optional<fs::path> find_environment(const fs::path& envs, const std::string& key,
                                         const std::string& rebuild) {
  std::optional<fs::path> found;
  long newest = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(envs / key, error)) {
    const std::string name = entry.path().filename().string();
    long number = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), number);
    if (parsed.ptr != name.data() + name.size() || number <= newest) continue;
    const auto complete = read_small_file(entry.path() / kComplete);
    if (!complete || (!rebuild.empty() && *complete != rebuild)) continue;
    newest = number;
    found = entry.path();
  }
  return found;
}

Environments count_environments(const fs::path& envs, const EnvironmentUse& use) {
  Environments sum;
  for (const fs::path& made : unused_environments(envs, use)) {
    ++sum.count;
    const auto size = read_small_file(made / kBytes);
    if (size) sum.bytes += std::strtoull(size->c_str(), nullptr, 10);
  }
  return sum;
}

void put_away_environments(const fs::path& envs, const EnvironmentUse& use) {
  std::error_code error;
  fs::create_directories(envs / kPutAway, error);
  for (const fs::path& made : unused_environments(envs, use)) {
    const auto name = random_id();
    if (name.ok()) fs::rename(made, envs / kPutAway / *name, error);
    if (!name.ok() || error) fmt::print(stderr, "removing {}: {}\n", made.string(), name.ok() ? error.message() : name.error().message);
  }
  if (use.building) return;
  for (const fs::directory_entry& key : fs::directory_iterator(envs, error)) remove_left_container(key.path() / kContainer);
}

bool delete_put_away(const fs::path& envs, const std::atomic<bool>& stop) {
  std::error_code error;
  for (const fs::directory_entry& away : fs::directory_iterator(envs / kPutAway, error)) {
    if (!delete_deeply(away.path(), stop)) return false;
  }
  return true;
}

std::string build_script(const Recipe& recipe, const fs::path& envs, const BuildFor& whom) {
  std::string script = "set -eu\n";
  const auto variable = [&script](const char* name, const std::string& value) {
    script += fmt::format("{}={}\n", name, shell_quoted(value));
  };
  variable("folder", (envs / recipe.key()).string());
  variable("python", recipe.python);
  variable("replica", whom.replica);
  variable("submission", whom.submission);
  variable("rebuild", whom.rebuild);
  variable("has_servers", whom.has_servers ? "yes" : "");
  variable("ask_index", kAskIndex);
  variable("image", full_image_name(recipe.image));
  variable("shown", recipe.image);
  variable("image_id", whom.fetcher.image_id);
  variable("archive_stamp", whom.fetcher.archive_stamp);
  variable("expected", whom.fetcher.expected());
  variable("fetcher", whom.fetcher.program);
  variable("dtrain", (whom.programs / "dtrain").string());
  variable("next", whom.next.string());
  script += recipe.image.empty() ? "echo 'Building your environment'" : "echo 'Preparing your image'";
  script += kBegin;
  if (!recipe.image.empty()) return script + kMakeImage + steps_in_image(recipe.install) + kEnd;
  script += kMakePython;
  for (const std::string& requirement : recipe.requirements) {
    if (requirement.find("==") != std::string::npos) variable("requirement", requirement);
    script += step_of("pip install " + shell_quoted(requirement));
    script += "requirement=''\n";
  }
  for (const std::string& line : recipe.install) script += step_of(line);
  return script + kEnd;
}

}  // namespace dtrain::runner
