// The main of every test binary: doctest's own, but a filter that matches no test is a failure. ctest
// runs one file at a time by its name; a name that stopped matching must not look like success.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

namespace {

unsigned matched = 0;

struct CountMatched : doctest::IReporter {
  explicit CountMatched(const doctest::ContextOptions&) {}
  void test_run_end(const doctest::TestRunStats& stats) override {
    matched = stats.numTestCasesPassingFilters;
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

REGISTER_LISTENER("count_matched", 1, CountMatched);

}  // namespace

#ifdef __SANITIZE_THREAD__
// The libraries from outside are not compiled with the thread sanitizer: what it sees of them when
// they call into the C library, without the locks they hold, is not to be judged.
extern "C" const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1"; }
#endif

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int result = context.run();
  if (context.shouldExit() || matched > 0) return result;
  std::fprintf(stderr, "no test matches the filter\n");
  return 1;
}
