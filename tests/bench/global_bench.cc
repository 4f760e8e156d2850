// What partition specs cost: one transformer of 39 000 ops, data, tensor and sequence parallel,
// judged with its specs and by kinds alone; on a mesh of two axes, on one of four million ranks, of
// one axis and of sixteen. Prints the best of RUNS (20) in milliseconds, and the ratios.
//   spmd_global_bench [RUNS]
#include "checker/check.h"
#include "ir/input/input.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include <time.h>

using namespace spmd;

namespace {

constexpr unsigned kLayers = 1190;

double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

// Extents are local; the model grows with the mesh. `dp`, `tp`: ranks; without data parallelism the
// weights are whole.
std::string program(const std::string &mesh, bool data_parallel, int64_t dp_ranks,
                    int64_t tp_ranks) {
  int64_t sequence = 128 * tp_ranks, width = 16 * dp_ranks;
  std::string dp = data_parallel ? "@dp" : "", text = mesh + "\n";
  auto line = [&](const char *form, auto &&...parts) {
    text += fmt::format(fmt::runtime(form), parts...) + "\n";
  };
  line("%x0 = input bf16[2{}, 128@tp, {}] R", dp, width);
  auto weight = [&](unsigned layer, const char *name, const std::string &dims) {
    line("%{}{}s = param bf16[{}] R", name, layer, dims);
  };
  for (unsigned i = 0; i < kLayers; ++i) {
    line("%an{} = param bf16[{}] R", i, width);
    line("%fn{} = param bf16[{}] R", i, width);
    std::string in = data_parallel ? std::string("16@tp, 16@dp") : fmt::format("16@tp, {}", width);
    std::string out = data_parallel ? std::string("16@dp, 16@tp") : fmt::format("{}, 16@tp", width);
    for (const char *name : {"wq", "wk", "wv", "w1", "w3"})
      weight(i, name, in);
    for (const char *name : {"wo", "w2"})
      weight(i, name, out);
  }
  for (unsigned i = 0; i < kLayers; ++i) {
    auto whole = [&](const char *name, unsigned dim) {
      if (data_parallel)
        line("%{0}{1} = all_gather %{0}{1}s {{ axis = dp, src = S({2}), dst = R }}", name, i, dim);
      else
        line("%{0}{1} = neg %{0}{1}s", name, i);
    };
    for (const char *name : {"wq", "wk", "wv", "w1", "w3"})
      whole(name, 1);
    whole("wo", 0), whole("w2", 0);
    line("%n{0} = rms_norm %x{0}, %an{0} {{ normalized_shape = [{1}] }}", i, width);
    line("%g{0} = all_gather %n{0} {{ axis = tp, src = S(1), dst = R }}", i);
    for (const char *name : {"q", "k", "v"}) {
      line("%{1}{0} = linear %g{0}, %w{1}{0}", i, name);
      line("%{1}h{0} = reshape %{1}{0} {{ shape = [2, {2}, 4, 4] }}", i, name, sequence);
      line("%{1}t{0} = permute %{1}h{0} {{ dims = [0, 2, 1, 3] }}", i, name);
    }
    line("%a{0} = attention_causal %qt{0}, %kt{0}, %vt{0}", i);
    line("%b{0} = permute %a{0} {{ dims = [0, 2, 1, 3] }}", i);
    line("%c{0} = reshape %b{0} {{ shape = [2, {1}, 16] }}", i, sequence);
    line("%o{0} = linear %c{0}, %wo{0} {{ partial = tp }}", i);
    line("%r{0} = reduce_scatter %o{0} {{ axis = tp, src = P, dst = S(1) }}", i);
    line("%y{0} = add %x{0}, %r{0}", i);
    line("%m{0} = rms_norm %y{0}, %fn{0} {{ normalized_shape = [{1}] }}", i, width);
    line("%h{0} = all_gather %m{0} {{ axis = tp, src = S(1), dst = R }}", i);
    line("%d{0} = linear %h{0}, %w1{0}", i);
    line("%e{0} = linear %h{0}, %w3{0}", i);
    line("%s{0} = silu %d{0}", i);
    line("%p{0} = mul %s{0}, %e{0}", i);
    line("%f{0} = linear %p{0}, %w2{0} {{ partial = tp }}", i);
    line("%z{0} = reduce_scatter %f{0} {{ axis = tp, src = P, dst = S(1) }}", i);
    line("%x{1} = add %y{0}, %z{0}", i, i + 1);
  }
  return text;
}

struct Times {
  double local, global;
  uint64_t ops;
};

Times measure(const std::string &text, unsigned runs) {
  ir::ReadResult read = ir::read_text(text);
  if (!read.errors.empty()) {
    fmt::print(stderr, "the generated program cannot be read: {}\n", read.errors[0].message);
    std::exit(1);
  }
  auto best = [&](ir::Mode mode, uint64_t &ops) {
    double least = 1e30;
    for (unsigned i = 0; i < runs; ++i) {
      double start = now();
      checker::CheckResult result = checker::check(read.program, {.mode = mode});
      least = std::min(least, now() - start);
      ops = result.stats.ops;
      if (!result.clean()) {
        fmt::print(stderr, "the generated program has errors\n");
        std::exit(1);
      }
    }
    return least;
  };
  Times times{};
  times.local = best(ir::Mode::Local, times.ops);
  times.global = best(ir::Mode::Global, times.ops);
  return times;
}

} // namespace

int main(int argc, char **argv) {
  unsigned runs = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 20;
  std::string many = "mesh m { dp = 32, tp = 8";
  for (char name = 'a'; name <= 'n'; ++name)
    many += fmt::format(", {} = 2", name);
  struct Row {
    const char *name;
    std::string mesh;
    bool data_parallel;
    int64_t dp, tp;
  };
  const Row rows[] = {
      {"dp=32, tp=8", "mesh m { dp = 32, tp = 8 }", true, 32, 8},
      {"dp=4096, tp=1024", "mesh m { dp = 4096, tp = 1024 }", true, 4096, 1024},
      {"tp=8", "mesh m { tp = 8 }", false, 32, 8},
      {"16 axes", many + " }", true, 32, 8},
  };
  Times first{}, one{};
  fmt::print("{:18} {:>8} {:>12} {:>12} {:>16}\n", "mesh", "ops", "kinds, ms", "specs, ms",
             "specs / kinds");
  for (const Row &row : rows) {
    std::string text = program(row.mesh, row.data_parallel, row.dp, row.tp);
    Times times = measure(text, runs);
    fmt::print("{:18} {:8} {:12.2f} {:12.2f} {:16.2f}\n", row.name, times.ops, times.local,
               times.global, times.global / times.local);
    if (&row == &rows[0])
      first = times;
    if (row.name == std::string("tp=8"))
      one = times;
    if (&row == &rows[1])
      fmt::print("{:18} {:.2f} x the smaller mesh\n", "", times.global / first.global);
    if (&row == &rows[3])
      fmt::print("{:18} {:.2f} x one axis, per op\n", "",
                 (times.global / static_cast<double>(times.ops)) /
                     (one.global / static_cast<double>(one.ops)));
  }
  return 0;
}
