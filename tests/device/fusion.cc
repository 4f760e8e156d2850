// Steps of a real model: what fusion saves, and that it changes no bit.
#include "tests/device/threads.h"

#include "runtime/extents/scale_down.h"
#include "runtime/tensor/element_bytes.h"

#include <fmt/format.h>

using namespace spmd;
using namespace spmd::runtime;
using namespace spmd::test;

namespace {

// With extents as small as its form allows, as text.
std::string scaled_down(const std::string &path) {
  ir::ReadResult read = ir::read_program(text_of(path));
  REQUIRE(read.errors.empty());
  llvm::Expected<std::vector<std::string>> notes =
      resize_program(read.program, checker::check(read.program), {{}, {}, true});
  ok(notes.takeError());
  return ir::print_text(read.program);
}

} // namespace

TEST_CASE("device: recorded steps are fused to the same bits", "[long]") {
  for (const char *name : {"torchtitan/llama3_tp_sp", "megatron_gpt/sp"}) {
    const std::string text = scaled_down(fmt::format("examples/{}.spmd.json", name));
    std::unique_ptr<Planned> run = planned(text);
    REQUIRE(run->problem == "");
    const uint32_t size = run->world->size();
    const std::vector<RankRun> fused = run_on_threads(text, size),
                               stepwise = run_on_threads(text, size, {.stepwise = true});
    for (uint32_t rank = 0; rank < size; ++rank) {
      INFO(name << ", rank " << rank);
      REQUIRE(fused[rank].problem == "");
      REQUIRE(stepwise[rank].problem == "");
      REQUIRE(fused[rank].outputs.size() == stepwise[rank].outputs.size());
      for (size_t i = 0; i < fused[rank].outputs.size(); ++i)
        CHECK((pack_elements(fused[rank].outputs[i]) == pack_elements(stepwise[rank].outputs[i])));
    }
    const RankRun &first = fused[0];
    WARN(fmt::format("{}: {} commands that move {} bytes become {} that move {}", name,
                     first.commands[0], first.bytes[0], first.commands[1], first.bytes[1]));
    CHECK(first.commands[1] * 10 < first.commands[0] * 9);
    CHECK(first.bytes[1] < first.bytes[0]);
  }
}
