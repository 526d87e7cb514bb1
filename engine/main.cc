// dtrain-engine: what a replica of `framework: engine` runs, and what can be done with the engine by
// hand.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/bench/bench_exchange.h"
#include "engine/bench/bench_gemm.h"
#include "engine/data/digits.h"
#include "engine/kernels/kernels.h"
#include "engine/server/grpc/grpc_tunnels.h"
#include "engine/training/replica.h"
#include "schema/version.h"

namespace {

using namespace dtrain;

// 2: the request is wrong, and would be wrong again; 1: it failed.
int exit_code(const Error& error) {
  return error.code == Code::InvalidArgument || error.code == Code::NotFound ? 2 : 1;
}

int end_with(const Status& status) {
  if (status.ok()) return 0;
  const Error& error = status.error();
  fmt::print(stderr, "dtrain-engine: {}\n", error.message);
  if (!error.hint.empty()) fmt::print(stderr, "  {}\n", error.hint);
  return exit_code(error);
}

void show_gemm() {
  const engine::GemmRates rates = engine::bench_gemm();
  fmt::print("one thread, {}; multiply-adds in the cache: {:.0f} GFLOP/s\n\n{:>16} {:>8} {:>8} {:>8}  of the peak\n",
             engine::kernels<float>().isa, rates.peak / 1e9, "m x n x k", "A B", "A B'", "A' B");
  for (const engine::GemmRate& rate : rates.shapes) {
    fmt::print("{:>16} {:>8.0f} {:>8.0f} {:>8.0f}  {:.0f} % {:.0f} % {:.0f} %\n",
               fmt::format("{}x{}x{}", rate.m, rate.n, rate.k), rate.plain / 1e9, rate.right_transposed / 1e9,
               rate.tree / 1e9, 100 * rate.plain / rates.peak, 100 * rate.right_transposed / rates.peak,
               100 * rate.tree / rates.peak);
  }
}

Status make_digits(const std::string& folder, const engine::DigitOptions& options) {
  TRY(engine::generate_digits(folder, options));
  fmt::print("{} digits to learn from in {}/train, {} to test on in {}/test\n", options.train, folder,
             options.test, folder);
  return ok();
}

Status show_exchange(int processes, bool tcp) {
  const std::vector<int64_t> sizes{4096, 65536, 400'000, 4'000'000, 25'000'000, 100'000'000};
  TRY(const auto rates, engine::bench_exchange(processes, tcp, sizes));
  fmt::print("{} processes, {}\n\n{:>12} {:>10} {:>8} {:>8}\n", processes, tcp ? "TCP" : "shared memory", "bytes",
             "seconds", "GB/s", "memcpy");
  for (const engine::ExchangeRate& rate : rates) {
    fmt::print("{:>12} {:>10.6f} {:>8.2f} {:>8.2f}\n", rate.bytes, rate.exchange_seconds,
               rate.exchange_bytes_per_second() / 1e9, rate.memcpy_bytes_per_second() / 1e9);
  }
  return ok();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Trains models: the replicas of experiments with framework: engine."};
  app.set_version_flag("--version", std::string(DTRAIN_VERSION));
  app.require_subcommand(1);
  int code = 0;

  CLI::App* train = app.add_subcommand(
      "train", "Train what DTRAIN_ENGINE says, in the place that TF_CONFIG says; results go to OUTPUT_DIR");
  train->callback([&] { code = end_with(engine::run_replica(engine::grpc_tunnels())); });

  CLI::App* data = app.add_subcommand("data", "Make data sets");
  data->require_subcommand(1);
  CLI::App* digits = data->add_subcommand("digits", "Drawn digits in the format of MNIST");
  engine::DigitOptions options;
  std::string out = "data";
  digits->add_option("--out", out, "the folder: gets train/ and test/")->capture_default_str();
  digits->add_option("--train", options.train, "how many to learn from")->capture_default_str();
  digits->add_option("--test", options.test, "how many to test on")->capture_default_str();
  digits->add_option("--seed", options.seed, "draws others")->capture_default_str();
  digits->callback([&] { code = end_with(make_digits(out, options)); });

  CLI::App* bench = app.add_subcommand("bench", "Measure, beside the ceilings of this machine");
  bench->require_subcommand(1);
  bench->add_subcommand("gemm", "Matrix products")->callback([] { show_gemm(); });
  CLI::App* allreduce = bench->add_subcommand("allreduce", "Sums of gradients among processes of this host");
  int processes = 2;
  bool tcp = false;
  allreduce->add_option("--processes", processes, "how many")->capture_default_str()->check(CLI::Range(2, 64));
  allreduce->add_flag("--tcp", tcp, "as between hosts");
  allreduce->callback([&] { code = end_with(show_exchange(processes, tcp)); });

  CLI11_PARSE(app, argc, argv);
  return code;
}
