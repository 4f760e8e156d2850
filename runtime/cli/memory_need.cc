// Adds up what buffers hold while they live, as this process stores them.
#include "runtime/cli/memory_need.h"

#include "checker/render/render.h"
#include "ir/support/arrays.h"
#include "runtime/tensor/packed.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sys/resource.h>

namespace spmd::runtime {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

uint64_t cell_bytes(ir::DType dtype) {
  return ir::info(dtype).form == ir::DTypeClass::Complex ? sizeof(Complex) : sizeof(double);
}

// What is multiplied in float may be kept as floats besides.
uint64_t stored_bytes(ir::DType dtype) {
  bool narrow = ir::info(dtype).form == ir::DTypeClass::Float && dtype != ir::DType::F64;
  return cell_bytes(dtype) + (narrow ? sizeof(float) : 0);
}

uint64_t bytes_of(const Buffer &buffer, const World &world, std::optional<RankId> own) {
  uint64_t elements = 0;
  for (RankId rank : world.ranks(buffer.mesh))
    if (!own || rank == *own)
      elements += static_cast<uint64_t>(count(buffer.on(rank)));
  return elements * stored_bytes(buffer.dtype);
}

// What messages take besides: their operands and results, in the declared type.
void add_messages(const Plan &plan, const World &world, RankId own, std::vector<uint64_t> &bytes) {
  llvm::SmallVector<BufferId, 16> sent;
  for (const Communicate &each : plan.communicates)
    sent.append({each.operand, each.result});
  llvm::sort(sent);
  sent.erase(std::unique(sent.begin(), sent.end()), sent.end());
  for (BufferId id : sent) {
    const Buffer &buffer = plan.buffers[id];
    if (world.on(buffer.mesh, own))
      bytes[id.index] += static_cast<uint64_t>(count(buffer.on(own))) *
                         packed_size(buffer.dtype, Domain::Declared);
  }
}

// The most that lives at one step.
uint64_t peak(const Plan &plan, llvm::ArrayRef<uint64_t> bytes) {
  std::vector<std::pair<uint64_t, int64_t>> changes; // step, bytes more
  for (uint32_t i = 0; i < plan.buffers.size(); ++i) {
    StepRange life = plan.buffers[BufferId{i}].life;
    changes.push_back({life.first, static_cast<int64_t>(bytes[i])});
    changes.push_back({uint64_t(life.last) + 1, -static_cast<int64_t>(bytes[i])});
  }
  llvm::sort(changes);
  int64_t now = 0, most = 0;
  for (auto [step, more] : changes) {
    now += more;
    most = std::max(most, now);
  }
  return static_cast<uint64_t>(most);
}

// Three of them, `%x 1.0 GiB, ...`.
std::string print_largest(const ir::Program &program, const Plan &plan,
                          llvm::ArrayRef<uint64_t> bytes) {
  std::vector<std::pair<uint64_t, ir::ValueId>> values;
  for (const PlannedValue &value : plan.values)
    if (value.buffer.valid() && value.value.valid()) // a storage as a whole has no name
      values.push_back({bytes[value.buffer.index], value.value});
  llvm::sort(values, [](const auto &a, const auto &b) {
    return a.first != b.first ? a.first > b.first : a.second.index < b.second.index;
  });
  std::string text;
  for (size_t i = 0; i < values.size() && i < 3; ++i)
    text += fmt::format("{}{} {}", i ? ", " : "",
                        ir::print(program.values[values[i].second].name, program.strings),
                        checker::print_bytes(static_cast<int64_t>(values[i].first)));
  return text;
}

constexpr uint64_t kCopies = 2;

// Of what a value means: whole, once for each list of ranks.
uint64_t whole_bytes(const ir::Program &program, const Plan &plan, const World &world,
                     const PlannedValue &value) {
  uint64_t lists = 1;
  if (value.known.type.valid())
    lists = static_cast<uint64_t>(world.count(program.types[value.known.type].mesh(),
                                              per_rank_axes(program.types[value.known.type])));
  const Buffer &buffer = plan.buffers[value.buffer];
  // Without a place it is a block of nothing larger.
  uint64_t elements = static_cast<uint64_t>(
      value.place.valid() ? count(plan.placements[value.place].whole())
                          : count(buffer.on(world.ranks(buffer.mesh).front())));
  return elements * lists * stored_bytes(buffer.dtype);
}

// Operands and results of these steps: as ranks hold them, as they mean them, as they are wanted.
uint64_t read_for(const ir::Program &program, const Plan &plan, const World &world,
                  llvm::ArrayRef<uint32_t> steps) {
  llvm::SmallVector<PlannedId, 16> read;
  for (uint32_t e : steps)
    for (Span span : {plan.executions[e].operands, plan.executions[e].results})
      for (PlannedId id : plan.list(span))
        if (id.valid() && plan.values[id].buffer.valid())
          read.push_back(id);
  llvm::sort(read);
  read.erase(std::unique(read.begin(), read.end()), read.end());
  uint64_t bytes = 0;
  for (PlannedId id : read)
    bytes += bytes_of(plan.buffers[plan.values[id].buffer], world, std::nullopt) +
             kCopies * whole_bytes(program, plan, world, plan.values[id]);
  return bytes;
}

} // namespace

MemoryNeed memory_need(const ir::Program &program, const Plan &plan, const World &world,
                       MemoryScope scope) {
  std::vector<uint64_t> bytes;
  for (const Buffer &buffer : plan.buffers)
    bytes.push_back(bytes_of(buffer, world, scope.rank));
  if (scope.rank)
    add_messages(plan, world, *scope.rank, bytes);
  MemoryNeed need{peak(plan, bytes), print_largest(program, plan, bytes)};
  if (!scope.compares)
    return need;
  if (scope.drawn) {
    need.bytes += read_for(program, plan, world, *scope.drawn);
    return need;
  }
  // The reference keeps every value, and the gradient of each that has one.
  std::vector<uint64_t> read(plan.buffers.size(), 0);
  for (uint32_t i = 0; i < plan.values.size(); ++i) {
    const PlannedValue &value = plan.values[PlannedId{i}];
    if (!value.buffer.valid())
      continue;
    const Buffer &buffer = plan.buffers[value.buffer];
    const uint64_t whole = whole_bytes(program, plan, world, value);
    const bool differentiable = scope.gradients && ir::differentiable(buffer.dtype);
    need.bytes += whole * (differentiable ? 2 : 1);
    // What is compared is there as ranks hold it, as they mean it, and as it is wanted.
    read[value.buffer.index] = kCopies * whole;
    if (scope.reads)
      read[value.buffer.index] += bytes_of(buffer, world, std::nullopt);
  }
  // Inputs are made here once more, where they are not read.
  for (llvm::ArrayRef<PlannedId> ends :
       {ir::as_array(plan.params),
        scope.reads ? ir::as_array(plan.outputs) : llvm::ArrayRef<PlannedId>()})
    for (PlannedId id : ends)
      if (id.valid() && plan.values[id].buffer.valid())
        need.bytes += read[plan.values[id].buffer.index];
  if (scope.stepwise)
    need.bytes += peak(plan, read);
  return need;
}

std::string largest_values(const ir::Program &program, const Plan &plan) {
  std::vector<uint64_t> bytes;
  for (const Buffer &buffer : plan.buffers)
    bytes.push_back(static_cast<uint64_t>(buffer.bytes));
  return print_largest(program, plan, bytes);
}

// The number behind a word of a file of words; none: no limit.
static uint64_t read_number(const char *path, llvm::StringRef wanted) {
  std::ifstream file(path);
  std::string word;
  while (!wanted.empty() && file >> word && word != wanted)
    ;
  uint64_t number = 0;
  return file >> number ? number : kNoLimit;
}

static uint64_t left_of(uint64_t limit, uint64_t taken) {
  if (limit == kNoLimit || taken == kNoLimit)
    return kNoLimit;
  return limit > taken ? limit - taken : 0;
}

uint64_t available_memory() {
  constexpr uint64_t kKilo = 1024;
  uint64_t machine = read_number("/proc/meminfo", "MemAvailable:");
  machine = machine == kNoLimit ? kNoLimit : machine * kKilo;
  // "max" is no number.
  uint64_t container = left_of(read_number("/sys/fs/cgroup/memory.max", ""),
                               read_number("/sys/fs/cgroup/memory.current", ""));
  rlimit own{};
  uint64_t process = kNoLimit, taken = read_number("/proc/self/status", "VmSize:");
  if (::getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY && taken != kNoLimit)
    process = left_of(own.rlim_cur, taken * kKilo);
  return std::min({machine, container, process});
}

} // namespace spmd::runtime
