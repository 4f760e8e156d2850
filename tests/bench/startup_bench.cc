// How long a run of spmdlint takes from start to exit on a ten-op program, beside a program that
// does nothing.
// Prints the median of 40 runs of each.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

namespace {

constexpr const char *kProgram = "trace { mode = local }\n"
                                 "mesh m { dp = 2, tp = 4 }\n"
                                 "%x = input f32[8, 16] V@dp R@tp\n"
                                 "%w = param f32[16, 4] R@dp V@tp\n"
                                 "%a = matmul %x, %w\n"
                                 "%b = gelu %a\n"
                                 "%c = mul %b, 2.0\n"
                                 "%d = add %c, %b\n"
                                 "%e = exp %d\n"
                                 "%f = neg %e\n"
                                 "%g = square %f\n"
                                 "%h = sum %g { dim = [1] }\n"
                                 "%i = reinterpret %h { axis = tp, src = V, dst = P }\n"
                                 "%j = all_reduce %i { axis = tp, src = P, dst = R }\n";

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

// Milliseconds from spawn to exit, or -1 if the program did not end with code 0.
double run(std::vector<std::string> words) {
  std::vector<char *> arguments;
  for (std::string &word : words)
    arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  double start = now();
  pid_t child = 0;
  int status = -1;
  if (posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0)
    waitpid(child, &status, 0);
  posix_spawn_file_actions_destroy(&actions);
  return status == 0 ? now() - start : -1;
}

double median(const std::vector<std::string> &words) {
  std::vector<double> times;
  for (int i = 0; i < 40; ++i)
    times.push_back(run(words));
  std::sort(times.begin(), times.end());
  return times.front() < 0 ? -1 : times[times.size() / 2];
}

} // namespace

int main() {
  std::string place = (std::filesystem::temp_directory_path() / "spmd_startup_XXXXXX").string();
  char *path = place.data();
  int file = mkstemp(path);
  if (file < 0 || write(file, kProgram, std::char_traits<char>::length(kProgram)) < 0)
    return 2;
  close(file);
  double nothing = median({"true"}), lint = median({SPMDLINT, "check", path}),
         version = median({SPMDLINT, "version"});
  unlink(path);
  if (nothing < 0 || lint < 0 || version < 0)
    return 2;
  fmt::print("start to exit       {:8.2f} ms for ten ops, {:.2f} ms for `version`, {:.2f} ms for a "
             "program that does "
             "nothing\n",
             lint, version, nothing);
  return 0;
}
