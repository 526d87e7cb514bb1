// dtrain-engine: what a replica of `framework: engine` runs, and what can be done with the engine by
// hand.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/bench/commands.h"
#ifdef DTRAIN_CUDA
#include "engine/cuda/gpus.h"
#endif
#include "engine/data/digits.h"
#include "engine/kernels/choice.h"
#include "engine/server/grpc/grpc_tunnels.h"
#include "engine/training/end_request.h"
#include "engine/training/replica.h"
#include "schema/version.h"

namespace {

using namespace dtrain;

// 2: the request is wrong, and would be wrong again; 1: it failed.
int exit_code(const Error& error) {
  return error.code == Code::InvalidArgument || error.code == Code::NotFound || error.code == Code::AlreadyExists ? 2 : 1;
}

int end_with(const Status& status) {
  if (status.ok()) return 0;
  const Error& error = status.error();
  fmt::print(stderr, "dtrain-engine: {}\n", error.message);
  if (!error.hint.empty()) fmt::print(stderr, "  {}\n", error.hint);
  return exit_code(error);
}

Status make_digits(const std::string& folder, const engine::DigitOptions& options) {
  TRY(engine::generate_digits(folder, options));
  fmt::print("{} digits to learn from in {}/train, {} to test on in {}/test\n", options.train, folder,
             options.test, folder);
  return ok();
}

const engine::Gpus* gpus() {
#ifdef DTRAIN_CUDA
  return &engine::cuda::gpus();
#else
  return nullptr;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Trains models: the replicas of experiments with framework: engine."};
  app.set_version_flag("--version", std::string(DTRAIN_VERSION));
  app.require_subcommand(1);
  // What is wrong, and then what there is.
  app.failure_message([](const CLI::App* at, const CLI::Error& error) {
    const std::vector<std::string> unknown = at->remaining(true);
    return fmt::format("dtrain-engine: {}\n\n{}",
                       unknown.empty() ? error.what() : "there is no " + unknown.front(), at->help());
  });
  int code = 0;
  if (const Status isa = engine::check_isa_variable(); !isa.ok()) return end_with(isa);

  CLI::App* train = app.add_subcommand(
      "train", "Train what DTRAIN_ENGINE says, in the place that TF_CONFIG says; results go to OUTPUT_DIR");
  train->callback([&] {
    const Status trained = engine::run_replica(engine::grpc_tunnels(), gpus());
    code = end_with(trained);
    if (!trained.ok() && trained.error().code == Code::Cancelled) engine::end_by_request();
  });

  CLI::App* data = app.add_subcommand("data", "Make data sets");
  data->require_subcommand(1);
  CLI::App* digits = data->add_subcommand("digits", "Drawn digits in the format of MNIST");
  engine::DigitOptions options{.overwrite = false};
  std::string out = "data";
  digits->add_option("--out", out, "the folder: gets train/ and test/")->capture_default_str();
  digits->add_option("--train", options.train, "how many to learn from")->capture_default_str();
  digits->add_option("--test", options.test, "how many to test on")->capture_default_str();
  // Up to the largest that a dtrain.yml may have; below 0 it would be read as another one.
  digits->add_option("--seed", options.seed, "draws others")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{0}, uint64_t{9'007'199'254'740'992}));
  digits->add_flag("--overwrite", options.overwrite, "replaces other files that are there");
  digits->callback([&] { code = end_with(make_digits(out, options)); });

  engine::add_bench(app, [&](const Status& status) { code = end_with(status); });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // 0: what was asked for is help.
    return app.exit(error) == 0 ? 0 : 2;
  }
  return code;
}
