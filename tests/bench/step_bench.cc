// How long reading and checking a trace take, beside what they cannot be faster than: simdjson
// going over every value of the text.
//   spmd_step_bench FILE [RUNS]
// Prints the best of RUNS (20) in milliseconds for each step, their ratios, and what a run of the
// tool on the file takes and peaks at.
#include "checker/check.h"
#include "ir/input/input.h"

#include <fmt/core.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

using namespace spmd;

namespace {

// Milliseconds of this thread: other work on the machine does not count.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

template <class F> double best_of(unsigned runs, F &&run) {
  double best = 1e30;
  for (unsigned i = 0; i < runs; ++i) {
    double start = now();
    run();
    best = std::min(best, now() - start);
  }
  return best;
}

// Visits every value; returns a number that depends on all of them, or -1 where the text is
// malformed.
int64_t visit(simdjson::ondemand::value value) {
  simdjson::ondemand::json_type type;
  if (value.type().get(type))
    return -1;
  int64_t sum = 0;
  switch (type) {
  case simdjson::ondemand::json_type::array: {
    simdjson::ondemand::array array;
    if (value.get_array().get(array))
      return -1;
    for (auto element : array) {
      simdjson::ondemand::value item;
      sum += std::move(element).get(item) ? -1 : visit(item);
    }
    return sum;
  }
  case simdjson::ondemand::json_type::object: {
    simdjson::ondemand::object object;
    if (value.get_object().get(object))
      return -1;
    for (auto member : object) {
      std::string_view key;
      simdjson::ondemand::value item;
      if (member.unescaped_key().get(key) || member.value().get(item))
        return -1;
      sum += static_cast<int64_t>(key.size()) + visit(item);
    }
    return sum;
  }
  case simdjson::ondemand::json_type::string: {
    std::string_view text;
    return value.get_string().get(text) ? -1 : static_cast<int64_t>(text.size());
  }
  case simdjson::ondemand::json_type::number: {
    double number = 0;
    return value.get_double().get(number) ? -1 : static_cast<int64_t>(number);
  }
  default:
    return 1;
  }
}

std::string read_file(const char *path) {
  std::string bytes;
  std::FILE *file = std::fopen(path, "rb");
  if (!file)
    return bytes;
  char buffer[1 << 16];
  while (size_t count = std::fread(buffer, 1, sizeof buffer, file))
    bytes.append(buffer, count);
  std::fclose(file);
  return bytes;
}

struct Times {
  double read = 1e30, check = 1e30, both = 1e30; // best of the runs, in milliseconds
  checker::CheckResult result;
};

// A fresh program each time: a second check of the same one would find its types interned.
Times measure(const std::string &bytes, unsigned runs) {
  Times times;
  for (unsigned i = 0; i < runs; ++i) {
    double start = now();
    ir::ReadResult read = ir::read_json(bytes);
    double middle = now();
    times.result = checker::check(read.program);
    double end = now();
    times.read = std::min(times.read, middle - start);
    times.check = std::min(times.check, end - middle);
    times.both = std::min(times.both, end - start);
  }
  return times;
}

// `spmdlint check --exit-zero FILE` as a process of its own: what a user waits for.
struct ToolRun {
  double seconds = 0;
  double peak_bytes = 0; // the mapped file included
  bool fine = false;
};
ToolRun run_tool(const char *path) {
  const char *words[] = {SPMDLINT, "check", "--exit-zero", "--isolated", path, nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ToolRun run;
  pid_t child = 0;
  int status = -1;
  rusage usage{};
  if (posix_spawn(&child, SPMDLINT, &actions, nullptr, const_cast<char **>(words), environ) == 0)
    wait4(child, &status, 0, &usage);
  posix_spawn_file_actions_destroy(&actions);
  run.fine = status == 0;
  auto seconds = [](timeval time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  run.seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  run.peak_bytes = static_cast<double>(usage.ru_maxrss) * 1024;
  return run;
}

} // namespace

int main(int count, char **words) {
  // First: the peak of a new process counts what the one that starts it holds.
  ToolRun tool = count > 1 ? run_tool(words[1]) : ToolRun();
  std::string bytes = count > 1 ? read_file(words[1]) : "";
  unsigned runs = count > 2 ? static_cast<unsigned>(std::atoi(words[2])) : 20;
  if (bytes.empty() || runs == 0) {
    fmt::print(stderr, "usage: spmd_step_bench FILE [RUNS]\n");
    return 2;
  }
  ir::ReadResult result = ir::read_json(bytes);
  if (!result.errors.empty()) {
    fmt::print(stderr, "{}: {}: {}\n", words[1], result.errors[0].path, result.errors[0].message);
    return 3;
  }
  Times times = measure(bytes, runs);
  simdjson::padded_string padded(bytes);
  simdjson::ondemand::parser parser;
  int64_t sum = 0;
  double parsing = best_of(runs, [&] {
    simdjson::ondemand::document document;
    simdjson::ondemand::value root;
    if (!parser.iterate(padded).get(document) && !document.get_value().get(root))
      sum += visit(root);
  });
  double megabytes = static_cast<double>(bytes.size()) / 1e6;
  fmt::print("{:.2f} MB, {} ops, {} values ({})\n", megabytes, result.program.insts.size(),
             result.program.values.size(), sum);
  fmt::print("simdjson parse-only {:8.2f} ms\n", parsing);
  fmt::print("read                {:8.2f} ms, {:.2f} x parse-only, {:.0f} MB/s\n", times.read,
             times.read / parsing, megabytes / times.read * 1e3);
  fmt::print("check               {:8.2f} ms, {:.2f} x parse-only, {:.0f} ns per op; {} distinct "
             "applications, "
             "{} findings\n",
             times.check, times.check / parsing,
             times.check * 1e6 / static_cast<double>(times.result.stats.ops),
             times.result.stats.applications, times.result.findings.size());
  fmt::print("read and check      {:8.2f} ms, {:.2f} x parse-only\n", times.both,
             times.both / parsing);
  std::string stream = ir::print_jsonl(result.program);
  double streaming = best_of(runs, [&] { sum += ir::read_json(stream).program.values.size(); });
  fmt::print("read as a stream    {:8.2f} ms, {:.2f} x parse-only\n", streaming,
             streaming / parsing);
  if (!tool.fine) {
    fmt::print(stderr, "{} failed on {}\n", SPMDLINT, words[1]);
    return 3;
  }
  fmt::print("spmdlint check      {:8.2f} ms of processor time, {:.2f} us per op; peak memory "
             "{:.2f} x the file\n",
             tool.seconds * 1e3,
             tool.seconds * 1e6 / static_cast<double>(result.program.insts.size()),
             tool.peak_bytes / static_cast<double>(bytes.size()));
  return 0;
}
