// Reads, checks, plans and runs a program, and collects what its ranks hold.
#include "tests/unit/run_program.h"

#include "llvm/ADT/STLExtras.h"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace spmd::runtime {

std::unique_ptr<Planned> planned(std::string_view text) {
  auto made = std::make_unique<Planned>();
  ir::ReadResult read = ir::read_program(llvm::StringRef(text.data(), text.size()));
  if (!read.errors.empty()) {
    made->problem = "it cannot be read: " + read.errors[0].message;
    return made;
  }
  made->checked = checker::check_and_lower(std::move(read.program));
  if (!made->checked) {
    ir::ReadResult again = ir::read_program(llvm::StringRef(text.data(), text.size()));
    made->problem = "it draws";
    for (const checker::Finding &finding : checker::check(again.program).findings)
      made->problem += " " + std::string(finding.info().name);
    return made;
  }
  llvm::Expected<World> world = World::make(made->program());
  if (!world) {
    made->problem = llvm::toString(world.takeError());
    return made;
  }
  made->world = std::move(*world);
  llvm::Expected<Plan> plan = make_plan(*made->checked, *made->world);
  if (!plan)
    made->problem = llvm::toString(plan.takeError());
  else
    made->plan = std::move(*plan);
  return made;
}

std::unique_ptr<Planned> planned_file(const std::string &path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return planned(text.str());
}

void ok(llvm::Error error) {
  std::string text = llvm::toString(std::move(error));
  REQUIRE(text == "");
}

// The axes on which ranks may hold different tensors, as far as blocks of one tensor do not say
// how.
static uint64_t standing(const Planned &run, const ir::Type &type, RankId rank) {
  uint64_t at = 0;
  for (ir::AxisId axis :
       (type.of(ir::Kind::Varying) - type.sharded()) | (type.of(ir::Kind::Partial) - type.zero()))
    at = ir::mix(at, static_cast<uint64_t>(run.world->coordinate(type.mesh(), axis, rank)) + 1);
  return at;
}

Tensor input_for(const Planned &run, PlannedId param, RankId rank, Domain domain, uint64_t seed) {
  const PlannedValue &value = run.plan->values[param];
  const Buffer &buffer = run.plan->buffers[value.buffer];
  const ir::Type &type = run.program().types[value.known.type];
  const Dims &dims = buffer.on(rank);
  Block block{dims, Dims(dims.size(), 0), dims};
  if (value.place.valid())
    block = run.plan->placements[value.place].block(*run.world, rank);
  Tensor tensor = Tensor::make(buffer.dtype, dims, domain);
  uint64_t stream = ir::mix(ir::mix(seed, param.index), standing(run, type, rank));
  bool whole = !ir::differentiable(buffer.dtype);
  bool zero = !type.zero().empty();
  auto number = [&](int64_t i) -> int64_t {
    int64_t place = 0, left = i;
    llvm::SmallVector<int64_t, 5> at(dims.size());
    for (size_t d = dims.size(); d-- > 0; left /= dims[d])
      at[d] = left % dims[d];
    for (size_t d = 0; d < dims.size(); ++d)
      place = place * block.whole[d] + block.first[d] + at[d];
    uint64_t bits = ir::mix(stream, static_cast<uint64_t>(place));
    return zero ? 0 : whole ? static_cast<int64_t>(bits % 2) : static_cast<int64_t>(bits % 5) - 2;
  };
  tensor.visit([&](auto &cells) {
    for (size_t i = 0; i < cells.size(); ++i)
      cells[i] = typename std::decay_t<decltype(cells)>::value_type(
          static_cast<int64_t>(number(static_cast<int64_t>(i))));
  });
  return tensor;
}

CpuRun::CpuRun(Planned &run, CpuOptions options)
    : run_(run), options_(options), backend_(make_cpu_backend(options)) {
  problem_ =
      llvm::toString(backend_->prepare(run.checked->mutable_program(), *run.plan, *run.world));
}

void CpuRun::write(PlannedId param, RankId rank, const Tensor &tensor) {
  ok(backend_->write(run_.plan->values[param].buffer, rank, tensor));
}

void CpuRun::write(uint64_t seed) {
  for (PlannedId param : run_.plan->params)
    for (RankId rank : run_.world->ranks(run_.plan->buffers[run_.plan->values[param].buffer].mesh))
      write(param, rank, input_for(run_, param, rank, options_.domain, seed));
}

std::string CpuRun::run(StepRange steps) {
  return llvm::toString(backend_->run(steps, kNoDeadline));
}

Tensor CpuRun::read(PlannedId value, RankId rank) {
  Tensor tensor;
  ok(backend_->read(run_.plan->values[value].buffer, rank, tensor));
  return tensor;
}

std::vector<std::string> case_files() {
  std::vector<std::string> files;
  for (const char *folder : {"tests/cases", "examples"})
    for (const auto &entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.path().extension() == ".spmd")
        files.push_back(entry.path().string());
  llvm::sort(files);
  return files;
}

} // namespace spmd::runtime
