// Draws inputs, or takes them from files. Whole tensors are cut as the declared type says; addends
// and scales are put in so that the ranks together mean what the file holds.
#include "runtime/inputs/inputs.h"

#include "runtime/backends/backend.h"
#include "runtime/inputs/generated_data.h"
#include "runtime/inputs/npy.h"
#include "runtime/inputs/safetensors.h"
#include "runtime/reference/blocks.h"
#include "runtime/reference/meaning.h"
#include "runtime/tensor/element_bytes.h"

#include "ir/input/read_file.h"
#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

namespace spmd::runtime {

using llvm::StringRef;

InputFiles::InputFiles() = default;
InputFiles::~InputFiles() = default;

namespace {

constexpr StringRef kArchive = ".safetensors";

// The axes along which ranks hold addends, and those along which they hold different tensors.
llvm::SmallVector<ir::AxisId, 4> members(ir::AxisSet axes) {
  llvm::SmallVector<ir::AxisId, 4> list;
  for (ir::AxisId axis : axes)
    list.push_back(axis);
  return list;
}
llvm::SmallVector<ir::AxisId, 4> addend_axes(const ir::Type &type) {
  return members(type.of(ir::Kind::Partial) - type.zero());
}
bool adds_up(const ir::Type &type) { return type.combining().empty(); }

// The first element that is no number; none if all are.
std::optional<int64_t> not_finite(const Tensor &tensor) {
  if (tensor.is_complex()) {
    const std::vector<Complex> &cells = tensor.of<Complex>();
    for (size_t i = 0; i < cells.size(); ++i)
      if (!std::isfinite(cells[i].real()) || !std::isfinite(cells[i].imag()))
        return static_cast<int64_t>(i);
    return std::nullopt;
  }
  const std::vector<double> &cells = tensor.of<double>();
  for (size_t i = 0; i < cells.size(); ++i)
    if (!std::isfinite(cells[i]))
      return static_cast<int64_t>(i);
  return std::nullopt;
}

// The first element that the dtype does not have; none if it has all.
std::optional<int64_t> not_exact(const Tensor &tensor, ir::DType dtype) {
  const std::vector<double> &cells = tensor.of<double>();
  for (size_t i = 0; i < cells.size(); ++i)
    if (rounded(cells[i], dtype) != cells[i])
      return static_cast<int64_t>(i);
  return std::nullopt;
}

// Formats without a word for these dtypes hold them as f32.
bool lacks_word(ir::DType dtype) {
  return dtype == ir::DType::BF16 || dtype == ir::DType::F8E4M3 || dtype == ir::DType::F8E5M2;
}

// One of `ranks` addends of a tensor: floats are halved again and again, which is exact; of whole
// numbers all but the first are small.
Tensor addend(Tensor whole, int64_t at, int64_t ranks, Domain domain) {
  if (ranks == 1)
    return whole;
  ir::DTypeClass form = ir::info(whole.dtype).form;
  if (form == ir::DTypeClass::Float || form == ir::DTypeClass::Complex) {
    whole = in_domain(std::move(whole), domain);
    int64_t halvings = std::min(at + 1, ranks - 1);
    multiply(whole, 1, int64_t(1) << std::min<int64_t>(halvings, 62));
    return whole;
  }
  for (double &cell : whole.of<double>())
    cell = at == 0 ? cell - static_cast<double>((ranks - 1) * ranks / 2) : static_cast<double>(at);
  return in_domain(std::move(whole), domain);
}

} // namespace

// --- files ---------------------------------------------------------------------------------------

std::string InputFiles::open(const std::string &path) {
  if (opened_.count(path))
    return "";
  llvm::sys::fs::file_status status;
  if (!llvm::sys::fs::status(path, status) && !llvm::sys::fs::is_regular_file(status))
    return "it is no regular file";
  std::string problem;
  std::unique_ptr<llvm::MemoryBuffer> buffer = ir::read_file(path, problem, ~uint64_t(0));
  if (!buffer)
    return problem;
  File &file = opened_[path];
  file.buffer = std::move(buffer);
  if (!ir::ends_with(StringRef(path), kArchive))
    return "";
  llvm::Expected<std::vector<StoredTensor>> tensors = read_safetensors(file.buffer->getBuffer());
  if (!tensors)
    return llvm::toString(tensors.takeError());
  file.tensors = std::move(*tensors);
  return "";
}

std::string InputFiles::add(const std::string &word) {
  size_t equals = word.find('=');
  std::string name = equals == std::string::npos ? "" : word.substr(0, equals);
  std::string path = equals == std::string::npos ? word : word.substr(equals + 1);
  bool archive = ir::ends_with(StringRef(path), kArchive);
  if (path.empty() || (name.empty() && !archive))
    return fmt::format("`{}` has not the form NAME=FILE, NAME@RANK=FILE or FILE.safetensors", word);
  if (std::string problem = open(path); !problem.empty())
    return fmt::format("{}: {}", path, problem);
  if (archive) {
    archives_.push_back({name, path});
    return "";
  }
  GivenInput given{name, path, std::nullopt};
  size_t at = name.rfind('@');
  int64_t rank = 0;
  if (at != std::string::npos && !StringRef(name).substr(at + 1).getAsInteger(10, rank)) {
    given.name = name.substr(0, at);
    given.rank = rank;
  }
  given_.push_back(std::move(given));
  return "";
}

// --- what the program declares -------------------------------------------------------------------

Inputs::Inputs(checker::CheckedProgram &program, const World &world, const InputFiles &files)
    : world_(world), program_(program.mutable_program()), checked_(program),
      contents_(contents_of(program)) {
  for (const ir::Param &param : program_.params)
    declare(param);
  take_files(files);
}

void Inputs::problem(std::string input, std::string text, std::optional<size_t> param) {
  problems_.push_back({std::move(input), std::move(text), param});
}

void Inputs::declare(const ir::Param &param) {
  Param &made = params_.emplace_back();
  made.name = ir::print(program_.values[param.value].name, program_.strings);
  for (StringRef name : {StringRef(made.name), StringRef(made.name).drop_front(1)})
    by_name_.try_emplace(name, params_.size() - 1);
  if (param.name.valid())
    by_name_.try_emplace(program_.strings[param.name], params_.size() - 1);
  rules::TensorInfo known = checked_.known(param.value);
  made.type = program_.types[known.type];
  bool no_data = !known.shape.valid() || program_.shapes[known.shape].dtype == ir::DType::Unknown;
  if (param.role == ir::Role::Token && no_data)
    return;
  llvm::Expected<Placement> placement = Placement::make(program_, world_, known, "it");
  if (!placement)
    return problem(made.name, llvm::toString(placement.takeError()), params_.size() - 1);
  if (placement->dtype() == ir::DType::Unknown)
    return problem(made.name, "its element type is not known", params_.size() - 1);
  if (count(placement->whole()) >= kTooManyElements)
    return problem(made.name, "it has more elements than can be counted", params_.size() - 1);
  made.placement = std::move(*placement);
  made.cut = declared_cut(param);
  std::optional<Rational> scale = number_of(program_, made.type.scale, made.type.mesh());
  if (!scale)
    return problem(made.name, "a symbol in its scale has no value", params_.size() - 1);
  made.scale = *scale;
}

// None: the type that is known says it all, or the declaration leaves some axis a list, or other
// blocks than those that ranks hold.
std::optional<Placement> Inputs::declared_cut(const ir::Param &param) const {
  const ir::Value &value = program_.values[param.value];
  rules::TensorInfo known = checked_.known(param.value);
  if (!value.declared.valid() || per_rank_axes(program_.types[known.type]).empty() ||
      !per_rank_axes(program_.types[value.declared]).empty())
    return std::nullopt;
  known.type = value.declared;
  llvm::Expected<Placement> placement = Placement::make(program_, world_, known, "it");
  if (!placement) {
    llvm::consumeError(placement.takeError());
    return std::nullopt;
  }
  if (value.global_shape.valid()) {
    llvm::Expected<Dims> stated = dims_of(program_, value.global_shape, "it");
    bool same = stated && *stated == placement->whole();
    llvm::consumeError(stated.takeError());
    if (!same)
      return std::nullopt;
  }
  return std::move(*placement);
}

std::optional<size_t> Inputs::find(StringRef name) const {
  auto at = by_name_.find(name);
  return at == by_name_.end() ? std::nullopt : std::optional(at->second);
}

// --- what files give -----------------------------------------------------------------------------

void Inputs::take_files(const InputFiles &files) {
  for (const auto &[name, file] : files.archives_)
    take_archive(name, file, files);
  for (const InputFiles::GivenInput &given : files.given_)
    take(given, files);
  for (size_t i = 0; i < params_.size(); ++i) {
    const Param &param = params_[i];
    if (param.pieces.empty())
      continue;
    for (RankId rank : world_.ranks(param.placement->mesh()))
      if (llvm::none_of(param.pieces, [&](const auto &piece) { return piece.first == rank; }))
        problem(param.name,
                fmt::format("data of rank {} are missing; those of other ranks are given",
                            world_.number(rank)));
  }
}

std::string Inputs::fit(const Param &param, const Dims &dims, Tensor &tensor) const {
  ir::DType declared = param.placement->dtype();
  bool widened = lacks_word(declared) && tensor.dtype == ir::DType::F32;
  if ((tensor.dtype != declared && !widened) || tensor.dims != dims)
    return fmt::format("it holds {}, and {} is {}", print_shape(tensor.dtype, tensor.dims),
                       param.name, print_shape(declared, dims));
  if (std::optional<int64_t> at = not_finite(tensor))
    return fmt::format("its element {} is not finite", print_position(tensor.dims, *at));
  if (widened) {
    if (std::optional<int64_t> at = not_exact(tensor, declared))
      return fmt::format("its element {} is no {}", print_position(tensor.dims, *at),
                         ir::info(declared).word);
    tensor.dtype = declared;
  }
  return "";
}

// Of a value that is a list, the file holds its tensors one after another in one more dimension, or
// the tensor that the declaration cuts.
void Inputs::set_whole(size_t index, const std::string &file, llvm::Expected<Tensor> tensor) {
  if (!tensor)
    return problem(file, llvm::toString(tensor.takeError()), index);
  Param &param = params_[index];
  param.is_cut = param.cut && tensor->dims == param.cut->whole();
  Dims dims = param.is_cut ? param.cut->whole() : param.placement->whole();
  llvm::SmallVector<ir::AxisId, 4> lists = per_rank_axes(param.type);
  if (!lists.empty() && !param.is_cut)
    dims.insert(dims.begin(), world_.count(param.placement->mesh(), lists));
  if (std::string text = fit(param, dims, *tensor); !text.empty())
    return problem(file, std::move(text), index);
  param.whole = std::move(*tensor);
}

void Inputs::take(const InputFiles::GivenInput &given, const InputFiles &files) {
  std::optional<size_t> index = find(given.name);
  if (!index)
    return problem(given.file, fmt::format("the program has no input `{}`", given.name));
  Param &param = params_[*index];
  if (!param.placement)
    return problem(given.file, fmt::format("{} holds no data", param.name));
  StringRef bytes = files.opened_.find(given.file)->second.buffer->getBuffer();
  llvm::Expected<Tensor> tensor = read_npy(bytes, param.placement->dtype());
  if (!given.rank)
    return set_whole(*index, given.file, std::move(tensor));
  if (!tensor)
    return problem(given.file, llvm::toString(tensor.takeError()), index);
  std::optional<RankId> rank = world_.find(*given.rank);
  if (!rank || !world_.on(param.placement->mesh(), *rank))
    return problem(given.file, fmt::format("{} is not on rank {}", param.name, *given.rank), index);
  Dims dims = param.placement->block(world_, *rank).dims;
  if (std::string text = fit(param, dims, *tensor); !text.empty())
    return problem(given.file, std::move(text), index);
  param.pieces.push_back({*rank, std::move(*tensor)});
}

void Inputs::take_archive(const std::string &name, const std::string &file,
                          const InputFiles &files) {
  bool found = false;
  for (const StoredTensor &stored : files.opened_.find(file)->second.tensors) {
    std::optional<size_t> index = find(name.empty() ? stored.name : name);
    bool meant = name.empty() || stored.name == name || (index && find(stored.name) == index);
    if (!index || !meant || !params_[*index].placement)
      continue;
    found = true;
    set_whole(*index, fmt::format("{}, tensor `{}`", file, stored.name), unpack(stored));
  }
  if (!found)
    problem(file, name.empty() ? "none of its tensors has the name of a parameter"
                               : fmt::format("it has no tensor for `{}`", name));
}

// --- what ranks hold -----------------------------------------------------------------------------

std::vector<int64_t> Inputs::part_of(size_t index, RankId rank) const {
  const Param &param = params_[index];
  if (!param.pieces.empty())
    return {rank};
  const ir::MeshId mesh = param.placement->mesh();
  Block block = param.placement->block(world_, rank);
  std::vector<int64_t> part = {world_.index(mesh, per_rank_axes(param.type), rank),
                               world_.index(mesh, addend_axes(param.type), rank)};
  for (const Dims *each : {&block.dims, &block.first, &block.whole})
    part.insert(part.end(), each->begin(), each->end());
  return part;
}

std::vector<std::vector<RankId>> Inputs::ranks_by_part(size_t param,
                                                       llvm::ArrayRef<RankId> ranks) const {
  std::map<std::vector<int64_t>, std::vector<RankId>> by_part;
  for (RankId rank : ranks)
    by_part[part_of(param, rank)].push_back(rank);
  std::vector<std::vector<RankId>> list;
  for (auto &[part, same] : by_part)
    list.push_back(std::move(same));
  return list;
}

Tensor Inputs::on_rank(size_t index, RankId rank, const InputOptions &options) const {
  const Param &param = params_[index];
  const ir::MeshId mesh = param.placement->mesh();
  Block block = param.placement->block(world_, rank);
  for (const auto &[of, tensor] : param.pieces)
    if (of == rank)
      return in_domain(tensor, options.domain);
  int64_t list = world_.index(mesh, per_rank_axes(param.type), rank);
  llvm::SmallVector<ir::AxisId, 4> pending = addend_axes(param.type);
  int64_t part = world_.index(mesh, pending, rank), parts = world_.count(mesh, pending);
  if (param.whole) {
    const Block held = param.is_cut ? param.cut->block(world_, rank) : block;
    Dims first = held.first, dims = held.dims;
    if (param.whole->dims.size() > dims.size()) {
      first.insert(first.begin(), list);
      dims.insert(dims.begin(), 1);
    }
    Tensor own = block_of(*param.whole, first, dims);
    own.dims = block.dims;
    if (adds_up(param.type))
      own = addend(std::move(own), part, parts, options.domain);
    own = in_domain(std::move(own), options.domain);
    multiply(own, param.scale.first, param.scale.second);
    round_cells(own, options.domain);
    return own;
  }
  Content content = contents_[index];
  bool picks = content.form >= ContentForm::Truth;
  Tensor own = Tensor::make(param.placement->dtype(), block.dims, options.domain);
  if (parts > 1 && adds_up(param.type)) {
    if (picks && part > 0)
      return own; // an index is no sum: one rank has it, the others 0
    if (content.form == ContentForm::Unit)
      content.factor /= static_cast<double>(parts);
  }
  uint64_t ranks = static_cast<uint64_t>(parts);
  uint64_t key = number_key(options.seed, param.name,
                            static_cast<uint64_t>(list) * ranks + static_cast<uint64_t>(part));
  draw_numbers(
      own, block, content, key,
      {.domain = options.domain, .whole_numbers = options.whole_numbers, .nonzero = parts > 1});
  if (param.scale != std::pair<int64_t, int64_t>(1, 1)) {
    multiply(own, param.scale.first, param.scale.second);
    round_cells(own, options.domain);
  }
  return own;
}

llvm::Error Inputs::visit(
    const Backend &backend, const Plan &plan, const InputOptions &options,
    llvm::function_ref<llvm::Error(BufferId, llvm::ArrayRef<RankId>, Tensor)> visitor) const {
  for (size_t i = 0; i < plan.params.size(); ++i) {
    if (!plan.params[i].valid() || !plan.values[plan.params[i]].buffer.valid())
      continue;
    BufferId buffer = plan.values[plan.params[i]].buffer;
    llvm::SmallVector<RankId, 16> own;
    for (RankId rank : world_.ranks(plan.buffers[buffer].mesh))
      if (backend.owns(rank))
        own.push_back(rank);
    for (const std::vector<RankId> &ranks : ranks_by_part(i, own))
      if (llvm::Error wrong = visitor(buffer, ranks, on_rank(i, ranks.front(), options)))
        return wrong;
  }
  return llvm::Error::success();
}

llvm::Error Inputs::write_to(Backend &backend, const Plan &plan,
                             const InputOptions &options) const {
  return visit(backend, plan, options,
               [&](BufferId buffer, llvm::ArrayRef<RankId> ranks, const Tensor &own) {
                 llvm::Error wrong = llvm::Error::success();
                 for (size_t i = 0; i < ranks.size() && !wrong; ++i)
                   wrong = backend.write(buffer, ranks[i], own);
                 return wrong;
               });
}

} // namespace spmd::runtime
