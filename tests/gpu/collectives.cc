// Groups of one rank and their collectives, the two streams, how far they are, and giving up.
#include "tests/gpu/opened_device.h"

#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

namespace spmd::gpu_test {
namespace {

void test_connect(OpenedDevice &on) {
  SpmdId id{};
  on.expect_fine(on.calls().make_id(on.device(), &id), "make_id");
  on.expect_fine(on.calls().connect(on.device(), &id), "connect");
}

// Groups are numbered on every rank, in them or not.
void test_split(OpenedDevice &on) {
  uint32_t first = 0, none = 0, second = 0;
  on.expect_fine(on.calls().split(on.device(), 0, 0, &first), "split");
  on.expect_fine(on.calls().split(on.device(), kSpmdNoColour, 0, &none), "split");
  on.expect_fine(on.calls().split(on.device(), 5, 3, &second), "split");
  on.expect(first == 1 && none == 2 && second == 3, "groups are not numbered one after another");
  const SpmdCollective collective{kSpmdAllReduce, none, kSpmdSum, 0, kSpmdF32, 0, 0, 1};
  on.expect(on.calls().collective(on.device(), &collective).code == kSpmdRefused,
            "a group that this rank is not in was taken");
}

// Alone, what goes round comes back as it was.
void test_collective(OpenedDevice &on, uint32_t form, uint32_t group, uint32_t combiner,
                     uint32_t element, bool in_place) {
  constexpr int64_t kCount = 1000;
  Elements operand = on.elements(element, kCount), result = on.elements(element, kCount);
  for (int64_t i = 0; i < kCount; ++i)
    operand.set(i, static_cast<double>(i % 7));
  on.put(operand);
  on.put(result);
  Elements &end = in_place ? operand : result;
  const SpmdCollective collective{form,    group,          combiner,   0,
                                  element, operand.device, end.device, kCount};
  on.expect_fine(on.calls().collective(on.device(), &collective), "collective");
  std::memcpy(end.host.data() + Elements::kMargin, operand.host.data() + Elements::kMargin,
              operand.bytes());
  on.expect(on.difference(end).empty(), on.difference(end));
}

void run_collectives(OpenedDevice &on) {
  constexpr uint32_t kAdded[] = {kSpmdI8,  kSpmdU8,   kSpmdI32, kSpmdU32, kSpmdI64,
                                 kSpmdU64, kSpmdBF16, kSpmdF16, kSpmdF32, kSpmdF64};
  for (uint32_t group : {kSpmdAllRanks, 1u, 3u})
    for (uint32_t form : {kSpmdAllReduce, kSpmdReduceScatter})
      for (uint32_t combiner : {kSpmdSum, kSpmdAvg, kSpmdMax, kSpmdMin, kSpmdProd})
        for (uint32_t element : kAdded)
          on.run("collective " + std::to_string(form) + ": group " + std::to_string(group) +
                     ", combiner " + std::to_string(combiner) + ", element " +
                     std::to_string(element),
                 [&] {
                   test_collective(on, form, group, combiner, element, form == kSpmdAllReduce);
                   test_collective(on, form, group, combiner, element, false);
                 });
  for (uint32_t form : {kSpmdAllGather, kSpmdBroadcast})
    for (uint32_t element = kSpmdBool; element <= kSpmdF64; ++element)
      on.run("collective " + std::to_string(form) + ": element " + std::to_string(element),
             [&] { test_collective(on, form, kSpmdAllRanks, kSpmdSum, element, false); });
  on.run("collective: of nothing", [&] {
    const SpmdCollective collective{kSpmdAllReduce, kSpmdAllRanks, kSpmdSum, 0, kSpmdF32, 0, 0, 0};
    on.expect_fine(on.calls().collective(on.device(), &collective), "collective");
  });
  on.run("collective: eight bits are not added", [&] {
    const SpmdCollective collective{
        kSpmdAllReduce, kSpmdAllRanks, kSpmdSum, 0, kSpmdF8E4M3, 0, 0, 1};
    on.expect(on.calls().collective(on.device(), &collective).code == kSpmdRefused, "it was taken");
  });
  on.run("exchange: with nobody", [&] {
    on.expect_fine(on.calls().exchange(on.device(), kSpmdAllRanks, nullptr, 0, nullptr, 0),
                   "exchange");
  });
}

// out = in + constant, flat
SpmdLoopNest plus(SpmdAddress from, SpmdAddress to, int64_t count, double number) {
  SpmdLoopNest nest{};
  nest.loops = 1;
  nest.extents[0] = count;
  nest.arrays = 1;
  nest.in[0] = {from, kSpmdF64, ~0u, 0, 0, 0, {1}};
  nest.out = {to, kSpmdF64, ~0u, 0, 0, 0, {1}};
  nest.factor = nest.divisor = 1;
  nest.constants = 1;
  nest.numbers[0] = number;
  nest.steps = 3;
  nest.program[0] = {kSpmdInput, 0, 0, 0};
  nest.program[1] = {kSpmdConstant, 0, 0, 0};
  nest.program[2] = {kSpmdAdd, 0, 1, 0};
  return nest;
}

// What one stream reads and the other one writes: a sum over all ranks goes from a to b, b and 1 to
// a.
struct Turns {
  Turns(OpenedDevice &on, int64_t count)
      : a(on.elements(kSpmdF64, count)), b(on.elements(kSpmdF64, count)),
        nest(plus(b.device, a.device, count, 1)),
        collective{kSpmdAllReduce, kSpmdAllRanks, kSpmdSum, 0,
                   kSpmdF64,       a.device,      b.device, static_cast<uint64_t>(count)} {
    for (int64_t i = 0; i < count; ++i)
      a.set(i, static_cast<double>(i));
    on.put(a);
  }
  Elements a, b;
  const SpmdLoopNest nest;
  const SpmdCollective collective;
};

// Two buffers to and fro between the streams: what does not wait reads what is not there yet.
void test_follow(OpenedDevice &on) {
  constexpr int64_t kCount = 1 << 17;
  constexpr int kTurns = 300;
  Turns turns(on, kCount);
  auto &[a, b, nest, collective] = turns;
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    on.expect_fine(on.calls().begin(on.device(), 2 * turn), "begin");
    on.expect_fine(on.calls().follow(on.device(), kSpmdCollectives, kSpmdCompute), "follow");
    on.expect_fine(on.calls().collective(on.device(), &collective), "collective");
    on.expect_fine(on.calls().begin(on.device(), 2 * turn + 1), "begin");
    on.expect_fine(on.calls().follow(on.device(), kSpmdCompute, kSpmdCollectives), "follow");
    on.expect_fine(on.calls().nest(on.device(), &nest), "nest");
    on.expect(on.calls().reached(on.device()) <= 2 * turn + 1,
              "a step that was not begun is reached");
  }
  on.expect_fine(on.calls().wait(on.device()), "wait");
  on.expect(on.calls().reached(on.device()) == 2 * kTurns - 1,
            "all is done and the last step not reached");
  for (int64_t i = 0; i < kCount; ++i)
    a.set(i, static_cast<double>(i + kTurns));
  on.expect(on.difference(a).empty(), on.difference(a));
}

// Of two groups, with an exchange with nobody; then what is given alone again.
void test_batch(OpenedDevice &on) {
  constexpr int64_t kCount = 5000;
  for (int turn = 0; turn < 3; ++turn) {
    on.expect_fine(on.calls().begin_batch(on.device()), "begin_batch");
    on.expect_fine(on.calls().end_batch(on.device()), "end_batch"); // of nothing
    std::vector<std::pair<Elements, Elements>> ends;
    for (int i = 0; i < 4; ++i)
      ends.emplace_back(on.elements(kSpmdF32, kCount), on.elements(kSpmdF32, kCount));
    uint32_t place = 0;
    for (auto &[operand, result] : ends) {
      for (int64_t i = 0; i < kCount; ++i)
        operand.set(i, static_cast<double>(i % 11) + ++place);
      on.put(operand);
      on.put(result);
    }
    on.expect_fine(on.calls().begin_batch(on.device()), "begin_batch");
    constexpr uint32_t kGroups[] = {kSpmdAllRanks, 1, 3, 1};
    for (size_t i = 0; i < ends.size(); ++i) {
      const SpmdCollective collective{i == 2 ? kSpmdAllGather : kSpmdAllReduce,
                                      kGroups[i],
                                      kSpmdSum,
                                      0,
                                      kSpmdF32,
                                      ends[i].first.device,
                                      ends[i].second.device,
                                      kCount};
      on.expect_fine(on.calls().collective(on.device(), &collective), "collective");
    }
    on.expect_fine(on.calls().exchange(on.device(), kSpmdAllRanks, nullptr, 0, nullptr, 0),
                   "exchange");
    on.expect_fine(on.calls().end_batch(on.device()), "end_batch");
    for (auto &[operand, result] : ends) {
      std::memcpy(result.host.data() + Elements::kMargin, operand.host.data() + Elements::kMargin,
                  operand.bytes());
      on.expect(on.difference(result).empty(), on.difference(result));
    }
  }
}

// Commands of both streams that follow each other, and a batch, replayed among others that are not.
void test_recording(OpenedDevice &on) {
  constexpr int64_t kCount = 1 << 14;
  constexpr uint32_t kSteps = 200;
  Turns turns(on, kCount);
  auto ask = [&](uint32_t first) {
    for (uint32_t step = first; step < first + kSteps; step += 2) {
      on.expect_fine(on.calls().begin(on.device(), step), "begin");
      on.expect_fine(on.calls().follow(on.device(), kSpmdCollectives, kSpmdCompute), "follow");
      on.expect_fine(on.calls().begin_batch(on.device()), "begin_batch");
      on.expect_fine(on.calls().collective(on.device(), &turns.collective), "collective");
      on.expect_fine(on.calls().end_batch(on.device()), "end_batch");
      on.expect_fine(on.calls().begin(on.device(), step + 1), "begin");
      on.expect_fine(on.calls().follow(on.device(), kSpmdCompute, kSpmdCollectives), "follow");
      on.expect_fine(on.calls().nest(on.device(), &turns.nest), "nest");
    }
  };
  ask(0);
  uint32_t recording = 0;
  on.expect_fine(on.calls().begin_record(on.device()), "begin_record");
  ask(kSteps);
  on.expect_fine(on.calls().end_record(on.device(), &recording), "end_record");
  constexpr uint32_t kReplays = 20;
  for (uint32_t turn = 0; turn < kReplays; ++turn) {
    on.expect_fine(on.calls().begin(on.device(), kSteps), "begin");
    on.expect_fine(on.calls().replay(on.device(), recording), "replay");
    const uint32_t reached = on.calls().reached(on.device());
    on.expect(reached < 2 * kSteps, "step " + std::to_string(reached) + " is reached");
    on.expect_fine(on.calls().begin(on.device(), 2 * kSteps), "begin");
    on.expect_fine(on.calls().nest(on.device(), &turns.nest), "nest");
  }
  on.expect_fine(on.calls().wait(on.device()), "wait");
  on.expect(on.calls().reached(on.device()) == 2 * kSteps, "the last step is not reached");
  // What comes alone adds 1 to what the last collective left: the same again.
  const int64_t added = (1 + kReplays) * (kSteps / 2);
  for (int64_t i = 0; i < kCount; ++i)
    turns.a.set(i, static_cast<double>(i + added));
  on.expect(on.difference(turns.a).empty(), on.difference(turns.a));
  on.expect_fine(on.calls().forget(on.device(), recording), "forget");
}

// Memory that is at work until then.
void test_release(OpenedDevice &on) {
  constexpr int64_t kCount = 1 << 16;
  for (int turn = 0; turn < 5; ++turn) {
    SpmdAddress memory = 0;
    on.expect_fine(on.calls().allocate(on.device(), kCount * sizeof(double), &memory), "allocate");
    on.expect(memory != 0 && memory % 512 == 0, "memory at an address that is not aligned");
    const SpmdLoopNest nest = plus(memory, memory, kCount, 1);
    for (int i = 0; i < 20; ++i)
      on.expect_fine(on.calls().nest(on.device(), &nest), "nest");
    on.expect_fine(on.calls().release(on.device(), memory), "release");
  }
}

// More than any queue holds, of steps that one stream has no part in.
void test_reached(OpenedDevice &on) {
  constexpr uint32_t kSteps = 5000;
  Elements a = on.elements(kSpmdF64, 1 << 10);
  on.put(a);
  const SpmdLoopNest nest = plus(a.device, a.device, a.count, 1);
  uint32_t before = 0;
  on.expect_fine(on.calls().begin(on.device(), 0), "begin");
  on.expect(on.calls().reached(on.device()) == 0, "nothing is left to do, and step 0 not reached");
  for (uint32_t step = 0; step < kSteps; ++step) { // every second one has nothing to do
    on.expect_fine(on.calls().begin(on.device(), step), "begin");
    if (step % 2 == 0)
      on.expect_fine(on.calls().nest(on.device(), &nest), "nest");
    const uint32_t reached = on.calls().reached(on.device());
    on.expect(reached >= before && reached <= step, "step " + std::to_string(reached) +
                                                        " is reached after step " +
                                                        std::to_string(before));
    before = reached;
  }
  on.expect_fine(on.calls().wait(on.device()), "wait");
  on.expect(on.calls().reached(on.device()) == kSteps - 1,
            "all is done and the last step not reached");
}

} // namespace

void test_collectives(OpenedDevice &on) {
  on.run("connect", [&] { test_connect(on); });
  on.run("split", [&] { test_split(on); });
  run_collectives(on);
}

void test_waits(OpenedDevice &on) {
  on.run("follow", [&] { test_follow(on); });
  on.run("batch", [&] { test_batch(on); });
  on.run("recording", [&] { test_recording(on); });
  on.run("release", [&] { test_release(on); });
  on.run("reached", [&] { test_reached(on); });
}

// With work that is not waited for before.
void test_finish(OpenedDevice &on) {
  on.run("finish", [&] {
    Elements a = on.elements(kSpmdF64, 1 << 16);
    on.put(a);
    const SpmdLoopNest nest = plus(a.device, a.device, a.count, 1);
    for (int i = 0; i < 20; ++i)
      on.expect_fine(on.calls().nest(on.device(), &nest), "nest");
    on.close();
  });
}

// Some seconds of work are given up at once, and the device is left.
void test_stop(OpenedDevice &on) {
  const bool emulated = std::strcmp(on.calls().name, "nccl") != 0; // work of its own takes minutes
  on.run("stop", [&] {
    Elements out = on.elements(kSpmdF64, 1);
    SpmdLoopNest nest = plus(0, out.device, int64_t(1) << (emulated ? 20 : 34), 1);
    nest.inner = 1;
    nest.arrays = 0;
    nest.steps = 2;
    nest.program[0] = {kSpmdConstant, 0, 0, 0};
    nest.program[1] = {kSpmdSin, 0, 0, 0};
    on.expect_fine(on.calls().begin(on.device(), 7), "begin");
    for (int i = 0; i < 4; ++i)
      on.expect_fine(on.calls().nest(on.device(), &nest), "nest");
    on.expect_fine(on.calls().begin(on.device(), 8), "begin");
    on.stop(true);
    const int32_t code = on.calls().wait(on.device()).code;
    on.expect(code == kSpmdStopped || (emulated && code == kSpmdOk), "the wait was not given up");
    on.expect(on.calls().reached(on.device()) == 7 || code == kSpmdOk,
              "another step than the one it is in");
    on.expect_fine(on.calls().close(on.device(), 0), "close");
  });
}

} // namespace spmd::gpu_test
