// Programs give on devices what they give on the cpu backend.
#include "tests/device/threads.h"

#include "runtime/bounds.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

using namespace spmd;
using namespace spmd::runtime;
using namespace spmd::test;

namespace {

std::string text_of(const std::string &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

} // namespace

TEST_CASE("device: what the test programs compute is what they compute on the cpu backend") {
  Totals totals;
  for (const std::string &path : case_files()) {
    std::string found = difference(text_of(path), totals);
    if (!found.empty())
      FAIL_CHECK(path << ": " << found);
  }
  std::string on_host;
  for (const auto &[op, count] : totals.host_ops)
    on_host += fmt::format(" {} {}", count, op);
  WARN(totals.programs << " programs; " << totals.device_steps << " steps on devices, "
                       << totals.host_steps << " computed on the host:" << on_host);
  CHECK(totals.programs > 50);
  CHECK(totals.device_steps > 10 * totals.host_steps);
}
