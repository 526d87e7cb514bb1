#include "daemon/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>

namespace dtrain::daemon {

void Database::Close::operator()(sqlite3* database) const { sqlite3_close(database); }

Result<Database> Database::open(const std::filesystem::path& path) {
  const mode_t mask = umask(0077);
  sqlite3* opened = nullptr;
  const int status = sqlite3_open_v2(path.c_str(), &opened,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                                     nullptr);
  umask(mask);
  Database database(path.string(), opened);
  if (status != SQLITE_OK) return database.error("open");
  sqlite3_extended_result_codes(opened, 1);
  TRY(database.execute("pragma journal_mode=wal; pragma synchronous=full; pragma busy_timeout=5000"));
  return database;
}

Status Database::execute(const char* sql) {
  const int status = sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr);
  return status == SQLITE_OK ? ok() : error("statement failed");
}

int64_t Database::last_inserted_row() const { return sqlite3_last_insert_rowid(database_.get()); }

Error Database::error(std::string_view what) const {
  const std::string message = fmt::format("database {}: {}: {}", path_, what, sqlite3_errmsg(database_.get()));
  switch (sqlite3_errcode(database_.get()) & 0xff) {
    case SQLITE_FULL:
      return {Code::ResourceExhausted, message,
              "free some space on the disk of DTRAIN_HOME"};
    case SQLITE_IOERR:
      return {Code::ResourceExhausted, message, "check the disk of DTRAIN_HOME: space, quota, health"};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {Code::DataLoss, message, "restore DTRAIN_HOME/db from a backup, or move it away"};
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
      return {Code::PermissionDenied, message, "DTRAIN_HOME must be writable by you"};
    default: return {Code::Internal, message, ""};
  }
}

Statement::Statement(Database& database, const char* sql)
    : database_(database),
      status_(sqlite3_prepare_v2(database.database_.get(), sql, -1, &statement_, nullptr)) {}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement& Statement::bind(int64_t value) {
  if (status_ == SQLITE_OK) status_ = sqlite3_bind_int64(statement_, ++bound_, value);
  return *this;
}

Statement& Statement::bind_text(std::string_view value) {
  if (status_ == SQLITE_OK) {
    status_ = sqlite3_bind_text(statement_, ++bound_, value.data(), static_cast<int>(value.size()),
                                SQLITE_TRANSIENT);
  }
  return *this;
}

Statement& Statement::bind_blob(std::string_view value) {
  if (status_ == SQLITE_OK) {
    // A null pointer would bind NULL; an empty blob is not null.
    status_ = sqlite3_bind_blob(statement_, ++bound_, value.empty() ? "" : value.data(),
                                static_cast<int>(value.size()), SQLITE_TRANSIENT);
  }
  return *this;
}

Result<bool> Statement::step() {
  if (status_ == SQLITE_OK || status_ == SQLITE_ROW) status_ = sqlite3_step(statement_);
  if (status_ == SQLITE_ROW) return true;
  if (status_ == SQLITE_DONE) return false;
  return database_.error(statement_ != nullptr ? "statement failed" : "bad statement");
}

void Statement::reset() {
  sqlite3_reset(statement_);
  bound_ = 0;
  status_ = SQLITE_OK;
}

int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::string Statement::bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  return {static_cast<const char*>(data), static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

Transaction::~Transaction() {
  if (open_) (void)database_.execute("rollback");
}

Status Transaction::begin() {
  TRY(database_.execute("begin immediate"));
  open_ = true;
  return ok();
}

Status Transaction::commit() {
  TRY(database_.execute("commit"));
  open_ = false;
  return ok();
}

}  // namespace dtrain::daemon
