// write_kernels COUNT FILE: the kernels of loop nests drawn at random, as one source for a host,
// with a table of them. nest_kernels.cc runs them.
#include "runtime/nccl/nest_source.h"
#include "tests/device/nest_kernels.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace {

// Without what all kernels begin with, and with a name of the namespace.
std::string body_of(std::string text) {
  const std::string linkage = "extern \"C\" ";
  text.erase(text.find(linkage), linkage.size());
  std::string body;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin) + 1;
    const std::string line = text.substr(begin, end - begin);
    const bool common = line.starts_with("#include") || line.starts_with("using namespace");
    body += common || line.find("#pragma") != std::string::npos ? "" : line;
    begin = end;
  }
  return body;
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 3) {
    std::printf("usage: %s COUNT FILE\n", argv[0]);
    return 2;
  }
  const int count = std::atoi(argv[1]);
  std::ofstream file(argv[2]);
  file << "#include \"tests/device/on_host.h\"\n#include \"runtime/nccl/cells.h\"\n#include "
          "\"tests/device/nest_kernels.h\"\n"
          "using namespace spmd::device;\nusing namespace spmd::nccl;\n";
  std::string table;
  for (int i = 0; i < count; ++i) {
    const spmd::test::RandomNest drawn = spmd::test::nest_of_seed(i);
    const spmd::nccl::NestSource made = spmd::nccl::nest_source(drawn.nest, spmd::test::kPartials);
    const std::string number = std::to_string(i);
    file << "namespace nest_" << number << " {\n" << body_of(made.text) << "}\n";
    table += "    {[](const void *a) { nest_" + number +
             "::nest(*static_cast<const NestArguments *>(a)); }, " + std::to_string(made.blocks) +
             ", " + std::to_string(made.parts) + "},\n";
  }
  file << "const std::vector<spmd::test::NestKernel> &spmd::test::nest_kernels() {\n"
          "  static const std::vector<NestKernel> kernels = {\n"
       << table << "  };\n  return kernels;\n}\n";
  return file.good() ? 0 : 1;
}
