// Writes the generated training step as a trace:
//   spmd_generate [--layers=126] [--mesh dp=32,cp=4,tp=8] [--format=json|text] [-o FILE]
// At the defaults it has about 38 000 ops. Axis sizes must divide the extents that they shard.
#include "ir/input/input.h"
#include "tests/bench/step.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace spmd;

namespace {

[[noreturn]] void wrong_call(const char *what) {
  fmt::print(stderr,
             "spmd_generate: {}\nusage: spmd_generate [--layers=N] [--mesh dp=N,cp=N,tp=N] "
             "[--format=json|text] [-o FILE]\n",
             what);
  std::exit(2);
}

bool read_mesh(llvm::StringRef text, bench::StepSize &size) {
  while (!text.empty()) {
    auto [one, rest] = text.split(',');
    auto [name, number] = one.split('=');
    int64_t *axis = name == "dp"   ? &size.dp
                    : name == "cp" ? &size.cp
                    : name == "tp" ? &size.tp
                                   : nullptr;
    if (!axis || number.getAsInteger(10, *axis) || *axis < 1)
      return false;
    text = rest;
  }
  return size.tokens % (size.cp * size.tp) == 0 && size.kv_heads % size.tp == 0 &&
         size.vocab % (size.dp * size.tp) == 0 && size.ffn % (size.dp * size.tp) == 0 &&
         1024 % (size.dp * size.tp) == 0;
}

} // namespace

int main(int count, char **words) {
  bench::StepSize size;
  llvm::StringRef format = "json", path = "-";
  for (int i = 1; i < count; ++i) {
    llvm::StringRef word = words[i];
    if (word.consume_front("--layers=")) {
      if (word.getAsInteger(10, size.layers) || size.layers == 0)
        wrong_call("--layers takes a number");
    } else if (word.consume_front("--format=")) {
      format = word;
    } else if (word == "--mesh" && i + 1 < count) {
      if (!read_mesh(words[++i], size))
        wrong_call("--mesh takes sizes that divide 131072 tokens, 8 key heads, 1024 key features, "
                   "53248 and 128256");
    } else if (word == "-o" && i + 1 < count) {
      path = words[++i];
    } else {
      wrong_call("unknown option");
    }
  }
  for (const ir::Format &row : ir::formats()) {
    if (format != llvm::StringRef(row.name))
      continue;
    std::string text = row.print(bench::Step(size).build());
    std::FILE *file = path == "-" ? stdout : std::fopen(path.str().c_str(), "wb");
    if (!file || std::fwrite(text.data(), 1, text.size(), file) != text.size() ||
        (file != stdout && std::fclose(file) != 0)) {
      fmt::print(stderr, "spmd_generate: {}: {}\n", path.str(), std::strerror(errno));
      return 3;
    }
    return 0;
  }
  wrong_call("--format takes `json` or `text`");
}
