// Lengths of bodies, each counted once, callees first.
#include "checker/rewrite/inlined_size.h"

#include "llvm/ADT/SmallVector.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace spmd::checker {

namespace {

// Of which a run takes seconds, and some hundred megabytes; what is written has no limit.
constexpr uint64_t kMost = uint64_t(1) << 17;
constexpr uint64_t kTimesWritten = 4;

uint64_t sum(uint64_t a, uint64_t b) {
  uint64_t both = 0;
  return __builtin_add_overflow(a, b, &both) ? UINT64_MAX : both;
}

class Lengths {
public:
  explicit Lengths(const ir::Program &program)
      : program_(program), bodies_(program.functions.size()) {}

  // Of one instruction with the bodies that it runs; these must be known.
  uint64_t of(const ir::Inst &inst) const {
    uint64_t length = 1;
    each_body(inst, [&](ir::FunctionId id) { length = sum(length, bodies_[id.index].length); });
    return length;
  }
  // Makes the bodies known that an instruction runs.
  void find(const ir::Inst &inst) {
    while (open_first(inst))
      while (!open_.empty())
        count();
  }

private:
  struct Known {
    bool asked = false;
    uint32_t next = 0; // instruction of the body that is to be counted
    uint64_t length = 0;
  };

  // One more instruction of the innermost body, or of what it runs.
  void count() {
    Known &known = bodies_[open_.back().index];
    const ir::Body body = program_.functions[open_.back()].body;
    if (known.next == body.size()) {
      open_.pop_back();
      return;
    }
    const ir::Inst &step = program_.insts[ir::InstId{body.first.index + known.next}];
    if (open_first(step))
      return;
    known.length = sum(known.length, of(step));
    ++known.next;
  }
  // The first body that it runs and that nobody asked for yet; false if there is none.
  bool open_first(const ir::Inst &inst) {
    bool opened = false;
    each_body(inst, [&](ir::FunctionId id) {
      if (opened || std::exchange(bodies_[id.index].asked, true))
        return;
      opened = true;
      open_.push_back(id);
    });
    return opened;
  }
  template <class F> void each_body(const ir::Inst &inst, F f) const {
    for (const ir::Attr &attr : program_.attrs[inst.attrs].attrs)
      if (attr.value.form == ir::AttrForm::Function)
        if (auto id = attr.value.as<ir::FunctionId>(); !program_.functions[id].opaque)
          f(id);
  }

  const ir::Program &program_;
  std::vector<Known> bodies_;
  std::vector<ir::FunctionId> open_;
};

} // namespace

std::optional<TooManyInlined> too_many_inlined(const ir::Program &program) {
  if (program.functions.empty())
    return std::nullopt;
  Lengths lengths(program);
  uint64_t all = 0, most = 0;
  ir::InstId largest;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const ir::Inst &inst = program.insts[ir::InstId{i}];
    lengths.find(inst);
    uint64_t length = lengths.of(inst);
    all = sum(all, length);
    if (length > most)
      most = length, largest = ir::InstId{i};
  }
  uint64_t limit = std::max<uint64_t>(kMost, kTimesWritten * program.insts.size());
  if (all <= limit)
    return std::nullopt;
  const ir::Inst &call = program.insts[largest];
  std::string made = call.result_count
                         ? ir::print(program.values[call.first_result].name, program.strings)
                         : "nothing";
  return TooManyInlined{
      largest,
      fmt::format("`{}` of {} makes {}{} instructions with all bodies in the place of their "
                  "calls, more than the {} that are written out at most: call less deep, or "
                  "run one level in a loop",
                  program.op_name(call.op).str(), made, most == UINT64_MAX ? "more than " : "",
                  most, limit)};
}

} // namespace spmd::checker
