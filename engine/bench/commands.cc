#include "engine/bench/commands.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include "engine/bench/bench_exchange.h"
#include "engine/bench/bench_gemm.h"
#include "engine/bench/bench_gpu_step.h"
#include "engine/bench/bench_servers.h"
#include "engine/bench/bench_step.h"
#include "engine/bench/ceilings.h"
#include "engine/bench/scaling.h"
#include "engine/cpus.h"
#ifdef DTRAIN_CUDA
#include "engine/cuda/bench_device.h"
#endif
#include "engine/kernels/kernels.h"
#include "engine/server/grpc/grpc_tunnels.h"

namespace dtrain::engine {

namespace {

namespace fs = std::filesystem;

Result<std::string> this_program() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) return errno_error("find this program", error.value());
  return path.native();
}

// Rows that go to a file as they come; none without a name.
class Csv {
 public:
  static Result<Csv> open(const std::string& path, const char* head) {
    Csv csv;
    if (path.empty()) return csv;
    csv.file_.open(path, std::ios::trunc);
    csv.file_ << head << '\n' << std::flush;
    if (!csv.file_) return Error{Code::InvalidArgument, "can't write " + path, ""};
    return csv;
  }
  void row(const std::string& text) {
    if (file_.is_open()) file_ << text << '\n' << std::flush;
  }

 private:
  std::ofstream file_;
};

Status show_gemm(const std::string& csv_path) {
  TRY(Csv csv, Csv::open(csv_path,
                         "m,n,k,plain_gflops,right_transposed_gflops,tree_gflops,peak_gflops,"
                         "plain_onednn_gflops,right_transposed_onednn_gflops,left_transposed_onednn_gflops"));
  const char* const isa = kernels<float>().isa;
  const auto peer = OneDnnPeer::find(isa);
  const GemmRates rates = bench_gemm(peer ? &*peer : nullptr);
  const auto gflops = [](const ProductRates& of, const char* format) {
    return fmt::format(fmt::runtime(format), of.plain / 1e9, of.right_transposed / 1e9, of.left_transposed / 1e9);
  };
  const std::string products = fmt::format(" {:>5} {:>5} {:>5}", "A B", "A B'", "A' B");
  fmt::print("one thread, {}; multiply-adds in the cache: {:.0f} GFLOP/s\n\n", isa, rates.peak / 1e9);
  if (peer) fmt::print("{:>51}oneDNN {}\n", "", peer->version());
  fmt::print("{:>14}{}  of the peak{}\n", "m x n x k", products, peer ? "  " + products : "");
  constexpr const char* kColumns = " {:>5.0f} {:>5.0f} {:>5.0f}";
  for (const GemmRate& rate : rates.shapes) {
    const double percent = rates.peak / 1e11;
    const ProductRates shares{rate.own.plain / percent, rate.own.right_transposed / percent,
                              rate.own.left_transposed / percent};
    fmt::print("{:>14}{}  {:<11}{}\n", fmt::format("{}x{}x{}", rate.m, rate.n, rate.k), gflops(rate.own, kColumns),
               gflops(shares, "{:.0f} {:.0f} {:.0f} %"), peer ? "  " + gflops(rate.peer, kColumns) : "");
    csv.row(fmt::format("{},{},{},{},{:.2f},{}", rate.m, rate.n, rate.k, gflops(rate.own, "{:.2f},{:.2f},{:.2f}"),
                        rates.peak / 1e9, peer ? gflops(rate.peer, "{:.2f},{:.2f},{:.2f}") : ",,"));
  }
  return ok();
}

Status show_exchange(int processes, bool tcp, const std::string& python,
                     const std::string& csv_path) {
  const std::vector<int64_t> sizes{4096, 65536, 400'000, 4'000'000, 25'000'000, 100'000'000};
  TRY(Csv csv, Csv::open(csv_path, "bytes,processes,way,seconds,memcpy_seconds,gloo_seconds"));
  TRY(const auto peer, TorchPeer::find(python));
  TRY(const auto rates, bench_exchange(processes, tcp, sizes));
  std::vector<double> gloo;
  if (peer) {
    TRY(gloo, peer->all_reduce_seconds(sizes, processes));
  }
  fmt::print("{} processes, {}\n\n{:>12} {:>10} {:>8} {:>8}{}\n", processes,
             tcp ? "TCP" : "shared memory", "bytes", "seconds", "GB/s", "memcpy",
             peer ? fmt::format(" {:>8} {:>8}  torch {}", "Gloo", "times", peer->version()) : "");
  for (size_t i = 0; i < rates.size(); ++i) {
    const ExchangeRate& rate = rates[i];
    fmt::print(
        "{:>12} {:>10.6f} {:>8.2f} {:>8.2f}{}\n", rate.bytes, rate.exchange_seconds,
        rate.exchange_bytes_per_second() / 1e9, rate.memcpy_bytes_per_second() / 1e9,
        peer ? fmt::format(" {:>8.2f} {:>8.1f}", static_cast<double>(rate.bytes) / gloo[i] / 1e9,
                           gloo[i] / rate.exchange_seconds)
             : "");
    csv.row(fmt::format("{},{},{},{:.9f},{:.9f},{}", rate.bytes, processes, tcp ? "tcp" : "memory",
                        rate.exchange_seconds, rate.memcpy_seconds,
                        peer ? fmt::format("{:.9f}", gloo[i]) : ""));
  }
  return ok();
}

Status show_servers(const std::vector<int64_t>& sizes, const std::vector<int>& counts,
                    const std::string& csv_path) {
  TRY(Csv csv, Csv::open(csv_path, "bytes,servers,way,seconds,socket_seconds,memcpy_seconds"));
  TRY(const auto rates, bench_servers(sizes, counts, grpc_tunnels()));
  fmt::print(
      "One worker pushes a gradient, servers apply it and answer with parameters.\n"
      "GB/s count both ways, and so do the ceilings: a bare socket, and memcpy.\n\n"
      "{:>10} {:>7} {:>5} {:>11} {:>7} {:>7} {:>7} {:>10} {:>7}\n",
      "bytes", "servers", "way", "microsec.", "GB/s", "socket", "memcpy", "of socket", "x gRPC");
  for (const ServerRate& rate : rates) {
    const auto grpc = std::ranges::find_if(rates, [&](const ServerRate& each) {
      return each.way == ServerWay::Grpc && each.bytes == rate.bytes &&
             each.servers == rate.servers;
    });
    const double both = 2 * static_cast<double>(rate.bytes) / 1e9;
    fmt::print("{:>10} {:>7} {:>5} {:>11.0f} {:>7.2f} {:>7.2f} {:>7.2f} {:>8.0f} % {:>7.2f}\n",
               rate.bytes, rate.servers, to_string(rate.way), 1e6 * rate.seconds,
               rate.bytes_per_second() / 1e9, both / rate.socket_seconds,
               both / rate.memcpy_seconds, 100 * rate.socket_seconds / rate.seconds,
               grpc->seconds / rate.seconds);
    csv.row(fmt::format("{},{},{},{:.9f},{:.9f},{:.9f}", rate.bytes, rate.servers,
                        to_string(rate.way), rate.seconds, rate.socket_seconds,
                        rate.memcpy_seconds));
  }
  return ok();
}

void show_step_rate(const StepRate& rate, const TorchPeer* peer) {
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  fmt::print("{}: batch {}, {} worker{}\n", rate.workload.name, rate.workload.batch,
             rate.workload.workers, rate.workload.workers == 1 ? "" : "s");
  fmt::print("  {:.1f} steps/s, {:.0f} samples/s", rate.steps_per_second(),
             rate.samples_per_second);
  if (rate.rows_per_sample > 1) {
    fmt::print(", {:.0f} tokens/s",
               rate.samples_per_second * static_cast<double>(rate.rows_per_sample));
  }
  const bool leaves_out = std::holds_alternative<MlpSpec>(rate.workload.model);
  fmt::print(" with {} thread{}\n  {:.1f} GFLOP/s{}, {:.0f} % of the {:.0f} that multiply-adds reach\n", rate.threads, rate.threads == 1 ? "" : "s",
             rate.operations_per_second() / 1e9, leaves_out ? ", counting what is left out of products" : "",
             100 * rate.operations_per_second() / rate.peak, rate.peak / 1e9);
  fmt::print("  MiB: parameters {:.2f}, gradients {:.2f}, state {:.2f}, activations {:.2f}\n",
             mib(rate.parameters), mib(rate.gradients), mib(rate.state), mib(rate.activations));
  if (rate.peer_samples_per_second) {
    fmt::print("  {:.2f} times torch {}: {:.0f} samples/s with {}\n",
               rate.samples_per_second / *rate.peer_samples_per_second, peer->version(),
               *rate.peer_samples_per_second, to_string(rate.peer_setting));
  }
  std::fflush(stdout);
}

Status show_step(StepOptions options, const std::optional<TorchPeer>& peer, const std::string& csv_path) {
  TRY(options.program, this_program());
  TRY(Csv csv,
      Csv::open(csv_path,
                "workload,batch,workers,threads,samples_per_second,rows_per_sample,"
                "operations_per_sample,peak_operations_per_second,parameters,gradients,state,"
                "activations,torch,torch_threads,torch_blas_threads,torch_spins,"
                "torch_samples_per_second"));
  fmt::print("{}; {} CPUs; medians of {} rounds in turns{}\n\n", kernels<float>().isa, cpus(),
             options.rounds, peer ? ", torch " + peer->version() : "; no torch to compare with");
  if (peer && peer->has_reference_blas()) {
    fmt::print("torch has nothing but the reference BLAS here: with libopenblas0-pthread it is many times faster\n\n");
  }
  return bench_step(options, peer ? &*peer : nullptr, [&](const StepRate& rate) {
    show_step_rate(rate, peer ? &*peer : nullptr);
    csv.row(fmt::format(
        "{},{},{},{},{:.2f},{},{:.0f},{:.4g},{},{},{},{},{},{},{}", rate.workload.name,
        rate.workload.batch, rate.workload.workers, rate.threads, rate.samples_per_second,
        rate.rows_per_sample, rate.operations, rate.peak, rate.parameters, rate.gradients,
        rate.state, rate.activations, peer ? peer->version() : "",
        rate.peer_samples_per_second
            ? fmt::format("{},{},{}", rate.peer_setting.threads, rate.peer_setting.blas_threads,
                          rate.peer_setting.spins ? 1 : 0)
            : ",,",
        rate.peer_samples_per_second ? fmt::format("{:.2f}", *rate.peer_samples_per_second) : ""));
  });
}

#ifdef DTRAIN_CUDA
// What NVIDIA says an H100 and H200 with SXM do in bf16 without sparsity: what shares of published figures are of.
constexpr double kHopperOperations = 989e12;

void show_gpu_step_rate(const GpuStepRate& rate, const TorchPeer* peer) {
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  fmt::print("{}: batch {}\n  {:.1f} steps/s, {:.0f} samples/s", rate.workload.name, rate.workload.batch,
             rate.samples_per_second / rate.workload.batch, rate.samples_per_second);
  if (rate.rows_per_sample > 1) {
    fmt::print(", {:.0f} tokens/s", rate.samples_per_second * static_cast<double>(rate.rows_per_sample));
  }
  fmt::print("\n  {:.2f} TFLOP/s, {:.1f} % of 989\n", rate.operations_per_second() / 1e12,
             100 * rate.operations_per_second() / kHopperOperations);
  fmt::print("  MiB: parameters {:.0f}, gradients {:.0f}, state {:.0f}, activations {:.0f}\n", mib(rate.parameters),
             mib(rate.gradients), mib(rate.state), mib(rate.activations));
  for (const auto& [mode, samples_per_second] : rate.peer_samples_per_second) {
    fmt::print("  {:.2f} times torch {}, {}: {:.0f} samples/s\n", rate.samples_per_second / samples_per_second,
               peer->version(), mode == "eager" ? mode : fmt::format("torch.compile ({})", mode), samples_per_second);
  }
  for (const auto& [mode, why] : rate.peer_failures) fmt::print("  torch failed ({}): {}\n", mode, why);
  std::fflush(stdout);
}

Status show_gpu_step(StepOptions options, const std::optional<TorchPeer>& peer, const std::string& csv_path) {
  TRY(options.program, this_program());
  TRY(Csv csv, Csv::open(csv_path, "workload,batch,samples_per_second,rows_per_sample,operations_per_sample,parameters,"
                                   "gradients,state,activations,torch,torch_mode,torch_samples_per_second"));
  fmt::print("GPU; medians of {} rounds in turns{}\n\n", options.rounds,
             peer ? ", torch " + peer->version() : "; no torch to compare with");
  return bench_gpu_step(options, peer ? &*peer : nullptr, [&](const GpuStepRate& rate) {
    show_gpu_step_rate(rate, peer ? &*peer : nullptr);
    const std::string own =
        fmt::format("{},{},{:.2f},{},{:.0f},{},{},{},{}", rate.workload.name, rate.workload.batch, rate.samples_per_second,
                    rate.rows_per_sample, rate.operations, rate.parameters, rate.gradients, rate.state, rate.activations);
    if (rate.peer_samples_per_second.empty()) csv.row(own + ",,,");
    for (const auto& [mode, samples_per_second] : rate.peer_samples_per_second) {
      csv.row(fmt::format("{},{},{},{:.2f}", own, peer->version(), mode, samples_per_second));
    }
  });
}

Status show_device(const cuda::DeviceBench& options, const std::string& csv_path) {
  TRY(Csv csv, Csv::open(csv_path, "what,seconds,operations,bytes,share"));
  const auto began = [&](const std::string& device) {
    fmt::print("{}; medians of {} rounds in turns, {} samples of {} tokens, width {}\n\n{:>34} {:>10} {:>8} {:>8}  of the ceiling\n",
               device, options.rounds, options.samples, options.context, options.width, "", "microsec.", "TFLOP/s", "GB/s");
  };
  return cuda::bench_device(options, began, [&](const cuda::DeviceRate& rate) {
    const auto rate_text = [&](double amount, double unit) {
      return amount > 0 ? fmt::format("{:.0f}", amount / rate.seconds / unit) : std::string();
    };
    fmt::print("{:>34} {:>10.1f} {:>8} {:>8}  {:.0f} %\n", rate.name, 1e6 * rate.seconds, rate_text(rate.operations, 1e12),
               rate_text(rate.bytes, 1e9), 100 * rate.share);
    csv.row(fmt::format("\"{}\",{:.9f},{:.0f},{:.0f},{:.4f}", rate.name, rate.seconds, rate.operations, rate.bytes, rate.share));
  });
}
#endif

Status show_scaling(ScalingOptions options, const std::string& out) {
  TRY(options.program, this_program());
  std::error_code error;
  fs::create_directories(out, error);
  if (error)
    return Error{Code::InvalidArgument, fmt::format("can't make {}: {}", out, error.message()), ""};
  // What is being done, on a line that the next one takes the place of.
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const auto said = [&](std::string_view what) {
    if (terminal) fmt::print(stderr, "\r\x1b[K{}", what);
  };
  const auto results = bench_scaling(options, said);
  if (terminal) fmt::print(stderr, "\r\x1b[K");
  if (!results.ok()) return results.error();
  TRY(write_scaling(*results, out));
  fmt::print("{}\nWrote {}/scaling.csv, scaling.svg and events/.\n", scaling_text(*results), out);
  return ok();
}

// A shorter one of the same: enough to see which way things go.
void make_quick(ScalingOptions& options) {
  options.model = MlpSpec{{64}};
  options.batches = {32, 128, 512, 2048, 8192};
  options.repeats = 1;
  options.train_samples = 40'000;
  options.test_samples = 2'000;
  options.throughput_samples = 400'000;
  options.target_epochs = 6;
}

Result<ModelSpec> model_named(const std::string& name) {
  if (name == "lenet") return ModelSpec(LenetSpec{});
  if (name == "mlp") return ModelSpec(MlpSpec{{128}});
  return Error{Code::InvalidArgument, fmt::format("no model {} here", name), "lenet or mlp"};
}

struct Words {
  std::string csv, python;
  int processes = 2;
  bool tcp = false;
  std::vector<int64_t> sizes{400'000, 4'000'000, 25'000'000};
  std::vector<int> counts{1, 2};
  StepOptions step;
  bool gpu = false, alone = false;
#ifdef DTRAIN_CUDA
  cuda::DeviceBench device;
#endif
  ScalingOptions scaling;
  std::string out = "scaling", model, data;
  bool quick = false;
};

}  // namespace

void add_bench(CLI::App& program, const std::function<void(const Status&)>& end) {
  const auto words = std::make_shared<Words>();
  CLI::App* bench = program.add_subcommand("bench", "Measure, beside the ceilings of this machine");
  bench->require_subcommand(1);
  const auto add = [&](const char* name, const char* what) {
    return bench->add_subcommand(name, what);
  };
  const auto with_csv = [&](CLI::App* of) {
    of->add_option("--csv", words->csv, "writes the figures there, too");
  };
  const auto with_python = [&](CLI::App* of) {
    of->add_option("--python", words->python,
                   "a python with torch, to compare with; else python3 if it has it");
  };

  CLI::App* gemm = add("gemm", "Matrix products");
  with_csv(gemm);
  gemm->callback([=] { end(show_gemm(words->csv)); });

  CLI::App* allreduce = add("allreduce", "Sums of gradients among processes of this host");
  allreduce->add_option("--processes", words->processes, "how many")
      ->capture_default_str()
      ->check(CLI::Range(2, 64));
  allreduce->add_flag("--tcp", words->tcp, "as between hosts");
  with_python(allreduce);
  with_csv(allreduce);
  allreduce->callback(
      [=] { end(show_exchange(words->processes, words->tcp, words->python, words->csv)); });

  CLI::App* ps = add("ps", "Parameter servers: gradients there, parameters back");
  ps->add_option("--bytes", words->sizes, "of the parameters")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(int64_t{64}, int64_t{4'000'000'000}));
  ps->add_option("--servers", words->counts, "how many")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  with_csv(ps);
  ps->callback([=] { end(show_servers(words->sizes, words->counts, words->csv)); });

  CLI::App* step = add("step", "Whole trainings, beside PyTorch where there is one");
  std::string known;
  for (const Workload& each : step_workloads()) known += (known.empty() ? "" : ", ") + each.name;
  step->add_option("names", words->step.names, "those that begin so, of " + known);
  step->add_option("--rounds", words->step.rounds, "of each")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  step->add_option("--seconds", words->step.seconds, "of each training, about")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 600.0));
  with_python(step);
  with_csv(step);
  step->add_flag("--alone", words->alone, "without PyTorch");
  const auto show = [=]() -> Status {
    TRY(const auto peer, words->alone ? std::optional<TorchPeer>() : TorchPeer::find(words->python));
#ifdef DTRAIN_CUDA
    if (words->gpu) return show_gpu_step(words->step, peer, words->csv);
#endif
    return show_step(words->step, peer, words->csv);
  };
  step->callback([=] { end(show()); });
#ifdef DTRAIN_CUDA
  std::string known_on_gpu;
  for (const Workload& each : gpu_step_workloads()) known_on_gpu += (known_on_gpu.empty() ? "" : ", ") + each.name;
  step->add_option("--torch-modes", words->step.torch_modes, "with --gpu: how PyTorch runs")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::IsMember(words->step.torch_modes));
  step->add_flag("--gpu", words->gpu, "on the first GPU: " + known_on_gpu);

  CLI::App* device = add("device", "What a step of GPT-2 consists of, on the first GPU");
  device->add_option("--samples", words->device.samples, "of a batch")->capture_default_str()->check(CLI::Range(1, 65536));
  device->add_option("--context", words->device.context, "tokens of a sample")->capture_default_str()->check(CLI::Range(1, 65536));
  device->add_option("--rounds", words->device.rounds, "of each")->capture_default_str()->check(CLI::Range(1, 1000));
  with_csv(device);
  device->callback([=] { end(show_device(words->device, words->csv)); });
#endif

  CLI::App* scaling = add("scaling", "What more workers and larger batches do, as CSV and plot");
  scaling->add_option("--out", words->out, "a folder: gets scaling.csv, scaling.svg, events/")
      ->capture_default_str();
  scaling->add_option("--data", words->data,
                      "a folder with train/ and test/; else digits are drawn");
  scaling->add_option("--model", words->model, "lenet (default) or mlp");
  scaling->add_option("--workers", words->scaling.workers, "to compare")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  CLI::Option* batches = scaling->add_option("--batches", words->scaling.batches, "to compare")
                             ->delimiter(',')
                             ->capture_default_str()
                             ->check(CLI::Range(1, 1'000'000));
  CLI::Option* repeats =
      scaling->add_option("--repeats", words->scaling.repeats, "with other seeds")
          ->capture_default_str()
          ->check(CLI::Range(1, 100));
  scaling->add_option("--learning-rate", words->scaling.learning_rate, "for a batch of 32")
      ->capture_default_str()
      ->check(CLI::Range(1e-6, 100.0));
  CLI::Option* target =
      scaling->add_option("--target", words->scaling.target, "the accuracy to reach")
          ->capture_default_str()
          ->check(CLI::Range(0.01, 1.0));
  scaling->add_flag("--quick", words->quick, "less of everything: ten seconds, with other defaults");
  scaling->callback([=] {
    ScalingOptions options = words->scaling;
    if (words->quick) {
      make_quick(options);
      if (batches->count() > 0) options.batches = words->scaling.batches;
      if (repeats->count() > 0) options.repeats = words->scaling.repeats;
      if (target->count() > 0) options.target = words->scaling.target;
    }
    options.data = words->data;
    std::ranges::sort(options.workers);
    std::ranges::sort(options.batches);
    if (!words->model.empty()) {
      auto model = model_named(words->model);
      if (!model.ok()) return end(model.error());
      options.model = *model;
    }
    end(show_scaling(options, words->out));
  });
}

}  // namespace dtrain::engine
