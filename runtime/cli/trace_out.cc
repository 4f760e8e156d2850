// Each value is written where its instruction has run: later its buffer may be another value's.
#include "runtime/cli/trace_out.h"

#include "checker/cli/output.h"
#include "checker/render/json_text.h"
#include "runtime/inputs/npy.h"
#include "runtime/inputs/safetensors.h"
#include "runtime/reference/blocks.h"
#include "runtime/reference/meaning.h"
#include "runtime/tensor/element_bytes.h"

#include "ir/dialect/print_type.h"
#include "ir/support/strings.h"
#include "ir/text/text.h"

#include "llvm/Support/FileSystem.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <set>

namespace spmd::runtime {

using Json = nlohmann::ordered_json;

namespace {

class TraceWriter {
public:
  TraceWriter(checker::CheckedProgram &checked, const Plan &plan, const World &world,
              Backend &backend, const TraceOutOptions &options)
      : program_(checked.mutable_program()), plan_(plan), world_(world), backend_(backend),
        options_(options),
        archive_(ir::ends_with(llvm::StringRef(options.target), ".safetensors")) {}

  std::string run() {
    if (!archive_)
      if (std::error_code error = llvm::sys::fs::create_directories(options_.target))
        return fmt::format("{}: {}", options_.target, error.message());
    for (PlannedId id : plan_.params)
      if (id.valid())
        write_value(id);
    uint32_t done = 0;
    for (const Execution &execution : plan_.executions) {
      if (execution.nested || execution.steps.last < done)
        continue;
      if (llvm::Error error = backend_.run({done, execution.steps.last}, kNoDeadline))
        return llvm::toString(std::move(error));
      done = execution.steps.last;
      for (PlannedId id : plan_.list(execution.results))
        if (id.valid())
          write_value(id);
      if (!problem_.empty() && !options_.own) // else the others wait for this rank
        return problem_;
    }
    const bool writes_index = !options_.own || *options_.own == 0;
    return problem_.empty() && writes_index ? finish() : problem_;
  }

private:
  // Of what a rank holds, in row-major order of the mesh; empty where there are no data to read.
  std::vector<Tensor> held(const PlannedValue &value) {
    std::vector<Tensor> tensors;
    const Buffer &buffer = plan_.buffers[value.buffer];
    for (RankId rank : world_.ranks(buffer.mesh))
      tensors.push_back(held(value, rank));
    return problem_.empty() ? std::move(tensors) : std::vector<Tensor>();
  }
  Tensor held(const PlannedValue &value, RankId rank) {
    const Buffer &buffer = plan_.buffers[value.buffer];
    Tensor tensor = Tensor::make(buffer.dtype, buffer.on(rank), options_.domain);
    if (llvm::Error error = backend_.read_own(value.buffer, rank, tensor))
      problem_ = llvm::toString(std::move(error));
    return tensor;
  }

  void write_value(PlannedId id) {
    const PlannedValue &value = plan_.values[id];
    if (!value.buffer.valid() || !problem_.empty())
      return;
    llvm::Expected<Distribution> distribution = Distribution::make(program_, value.known);
    if (!distribution)
      return llvm::consumeError(distribution.takeError());
    if (options_.own)
      return write_own(value, *distribution);
    std::vector<Tensor> tensors = held(value);
    if (tensors.empty())
      return;
    std::vector<const Tensor *> pointers;
    for (const Tensor &tensor : tensors)
      pointers.push_back(&tensor);
    std::string name = name_of(value);
    Meaning meaning = distribution->denote(pointers);
    // A list of tensors of several extents is no tensor.
    bool one = llvm::all_of(meaning.pieces, [&](const Tensor &piece) {
      return piece.dims == meaning.pieces.front().dims;
    });
    if (one) {
      Tensor whole =
          meaning.per_rank.empty() ? std::move(meaning.pieces.front()) : stacked(meaning.pieces, 0);
      Json entry = entry_of(value, name, whole.dtype, whole.dims);
      if (!meaning.per_rank.empty())
        entry["list"] = ir::print_axes(program_, distribution->type().mesh(), meaning.per_rank);
      put(name, std::move(whole), entry);
    }
    llvm::ArrayRef<RankId> ranks = world_.ranks(plan_.buffers[value.buffer].mesh);
    for (size_t i = 0; (options_.ranks || !one) && i < tensors.size(); ++i) {
      Json own = entry_on_rank(value, name, *distribution, i);
      put(name_on_rank(name, ranks[i]), std::move(tensors[i]), own);
    }
  }

  // What the rank of this process holds; on rank 0 the entries of all.
  void write_own(const PlannedValue &value, const Distribution &distribution) {
    const std::string name = name_of(value);
    llvm::ArrayRef<RankId> ranks = world_.ranks(plan_.buffers[value.buffer].mesh);
    for (size_t i = 0; i < ranks.size() && problem_.empty(); ++i) {
      Json entry = entry_on_rank(value, name, distribution, i);
      if (ranks[i] == *options_.own) {
        if (Tensor tensor = held(value, ranks[i]); problem_.empty())
          put(name_on_rank(name, ranks[i]), std::move(tensor), entry);
      } else if (*options_.own == 0) {
        entry["file"] = name_on_rank(name, ranks[i]) + ".npy";
        index_.push_back(std::move(entry));
      }
    }
  }

  std::string name_on_rank(const std::string &name, RankId rank) const {
    return fmt::format("{}@{}", name, world_.number(rank));
  }
  // With the place in the whole: where it begins, and the extents of all.
  Json entry_on_rank(const PlannedValue &value, const std::string &name,
                     const Distribution &distribution, size_t position) {
    const Buffer &buffer = plan_.buffers[value.buffer];
    const RankId rank = world_.ranks(buffer.mesh)[position];
    Json entry = entry_of(value, name, buffer.dtype, buffer.on(rank));
    entry["rank"] = world_.number(rank);
    const Dims first = distribution.first_on(static_cast<int64_t>(position)),
               whole = distribution.piece_dims(buffer.on(rank));
    entry["first"] = std::vector<int64_t>(first.begin(), first.end());
    entry["whole"] = std::vector<int64_t>(whole.begin(), whole.end());
    return entry;
  }

  // The calls that a value is made in, outermost first; empty: the main body.
  std::vector<std::string> body_of(const PlannedValue &value) const {
    std::vector<std::string> sites;
    for (uint32_t call = value.call; plan_.calls[call].site.valid();
         call = plan_.calls[call].caller)
      sites.insert(sites.begin(),
                   ir::print_value(program_, program_.insts[plan_.calls[call].site].first_result));
    return sites;
  }

  // The name of the value; of a body that was run several times with a number.
  std::string name_of(const PlannedValue &value) {
    std::string name = ir::print(program_.values[value.value].name, program_.strings).substr(1);
    for (char &c : name)
      if (c == '/')
        c = '_';
    std::string free = name;
    for (unsigned i = 1; !names_.insert(free).second; ++i)
      free = fmt::format("{}.{}", name, i);
    return free;
  }

  Json entry_of(const PlannedValue &value, const std::string &name, ir::DType dtype,
                const Dims &dims) {
    Json entry;
    entry["value"] = "%" + name;
    for (size_t i = 0; i < plan_.params.size(); ++i)
      if (program_.params[i].name.valid() && program_.params[i].value == value.value)
        entry["name"] = program_.strings[program_.params[i].name].str();
    if (std::vector<std::string> body = body_of(value); !body.empty())
      entry["body"] = std::move(body);
    entry["dtype"] = std::string(ir::info(dtype).word);
    entry["shape"] = std::vector<int64_t>(dims.begin(), dims.end());
    if (value.known.type.valid())
      entry["type"] = ir::print_kinds(program_, program_.types[value.known.type]);
    return entry;
  }

  void put(const std::string &name, Tensor tensor, Json entry) {
    if (options_.domain == Domain::F64 && ir::differentiable(tensor.dtype))
      tensor.dtype = tensor.is_complex() ? ir::DType::C128 : ir::DType::F64;
    if (archive_) {
      kept_.push_back({name, std::move(tensor)});
    } else {
      entry["file"] = name + ".npy";
      problem_ = checker::write_own_file(options_.target + "/" + name + ".npy", print_npy(tensor));
    }
    index_.push_back(std::move(entry));
  }

  std::string finish() {
    if (archive_) {
      std::vector<std::pair<std::string, const Tensor *>> tensors;
      for (const auto &[name, tensor] : kept_)
        tensors.push_back({name, &tensor});
      return checker::write_file(options_.target, print_safetensors(tensors));
    }
    constexpr std::string_view kDomains[] = {"declared", "f64", "field"};
    Json index = {{"program", options_.program},
                  {"seed", options_.seed},
                  {"numbers", std::string(kDomains[static_cast<size_t>(options_.domain)])},
                  {"values", index_}};
    return checker::write_file(options_.target + "/index.json",
                               checker::print_json(index, 1) + "\n");
  }

  ir::Program &program_;
  const Plan &plan_;
  const World &world_;
  Backend &backend_;
  const TraceOutOptions &options_;
  bool archive_;
  std::string problem_;
  std::set<std::string> names_;
  std::vector<std::pair<std::string, Tensor>> kept_;
  Json index_ = Json::array();
};

} // namespace

std::string trace_out(checker::CheckedProgram &program, const Plan &plan, const World &world,
                      Backend &backend, const TraceOutOptions &options) {
  return TraceWriter(program, plan, world, backend, options).run();
}

} // namespace spmd::runtime
