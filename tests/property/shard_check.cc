// Each application is judged by the rules, then run on all ranks.
#include "tests/property/shard_check.h"

#include "rules/violation.h"
#include "tests/unit/catch.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace spmd::property {

namespace {

constexpr unsigned kAcceptedDraws = 2, kMostDraws = 16;
constexpr const char *kAxisNames[] = {"dp", "tp"};

std::string mesh_text(const MeshSizes &mesh) {
  std::string text = "mesh m { ";
  for (size_t a = 0; a < mesh.size(); ++a)
    text += std::string(a ? ", " : "") + kAxisNames[a] + " = " + std::to_string(mesh[a]);
  return text + " }";
}

std::string partial_text(unsigned stated, size_t axes) {
  std::string names;
  for (size_t a = 0; a < axes; ++a)
    if (stated >> a & 1)
      names += std::string(names.empty() ? "" : ", ") + kAxisNames[a];
  return names.empty() ? "" : "partial = (" + names + ")";
}

// None if the shape is not known in numbers.
std::optional<std::vector<int>> numbers_of(const ir::Program &program, ir::ShapeId shape) {
  if (!shape.valid() || !program.shapes[shape].ranked)
    return std::nullopt;
  std::vector<int> numbers;
  for (ir::Extent extent : program.shapes[shape].dims) {
    if (!extent.is_number())
      return std::nullopt;
    numbers.push_back(static_cast<int>(extent.number()));
  }
  return numbers;
}

Array draw(const std::vector<int> &dims, std::mt19937 &random) {
  Array tensor{dims, Data(element_count(dims)), {}, {}};
  for (int64_t &value : tensor.data)
    value = static_cast<int64_t>(random() % 19) - 9;
  return tensor;
}

void scale_by(Array &tensor, int64_t scale) {
  for (int64_t &value : tensor.data)
    value *= scale;
}

// A scale as a number, on a mesh of these sizes.
std::optional<int64_t> number_of(const ir::Program &program, ir::ScaleId id, const ir::Mesh &mesh) {
  if (!id.valid() || program.scales[id].denominator != 1)
    return std::nullopt;
  int64_t number = program.scales[id].numerator;
  for (const ir::ScaleFactor &factor : program.scales[id].factors) {
    std::optional<ir::AxisId> axis = mesh.find(factor.base);
    if (!axis || factor.exponent < 0)
      return std::nullopt;
    for (int32_t i = 0; i < factor.exponent; ++i)
      number *= mesh[*axis].size();
  }
  return number;
}

bool equal(const std::optional<Array> &found, const Array &expected) {
  return found && found->dims == expected.dims && found->data == expected.data;
}

int size_of_block(const ir::Program &program, const ir::UnevenDim &uneven, int place) {
  if (uneven.sizes.valid()) {
    const auto &items = program.lists[uneven.sizes].items;
    return static_cast<int>(items[static_cast<size_t>(place)].as_integer());
  }
  int64_t block = uneven.block.number();
  return static_cast<int>(std::clamp<int64_t>(uneven.global.number() - block * place, 0, block));
}

std::string joined(const std::set<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : "+") + name;
  return text;
}

} // namespace

int64_t OpMeaning::scale(size_t, const std::vector<Layout> &, const MeshSizes &) const { return 1; }

struct ShardCheck::Reader {
  ir::ReadResult read;
  std::unique_ptr<rules::Rules> rules;
  const rules::ResolvedOp *op = nullptr;
  checker::OperandList operands;
  std::vector<size_t> positions; // per arg: the tensor of the case
  ir::ContextId local;

  const ir::Inst &inst() const {
    return read.program.insts[ir::InstId{read.program.main.last.index - 1}];
  }
};

std::string print(const OpCase &op, const std::vector<Layout> &layouts) {
  std::string text = op.name + ":";
  for (size_t i = 0; i < layouts.size(); ++i) {
    text += i ? ", [" : " [";
    for (size_t d = 0; d < op.tensors[i].dims.size(); ++d)
      text += (d ? " " : "") + std::to_string(op.tensors[i].dims[d]);
    text += "] " + layouts[i].print();
  }
  if (op.view) {
    text += ", to";
    for (int extent : *op.view)
      text += " " + std::to_string(extent);
  }
  if (op.declared)
    text += ", declared " + op.declared->print();
  return text;
}

ShardCheck::ShardCheck(MeshSizes mesh, unsigned seed, bool uneven, bool reversed)
    : mesh_(std::move(mesh)), random_(seed), data_random_(seed), seed_(seed), uneven_(uneven),
      reversed_(reversed) {}
ShardCheck::~ShardCheck() = default;

std::vector<std::vector<int>> ShardCheck::locals(const OpCase &op,
                                                 const std::vector<Layout> &layouts) const {
  std::vector<std::vector<int>> local;
  for (size_t i = 0; i < op.tensors.size(); ++i)
    local.push_back(local_dims(op.tensors[i].dims, layouts[i], mesh_));
  return local;
}

ShardCheck::Reader &ShardCheck::reader(const OpCase &op, const std::vector<Layout> &layouts,
                                       unsigned stated) {
  std::string text = "trace { mode = global }\n" + mesh_text(mesh_) + "\n";
  for (size_t i = 0; i < op.tensors.size(); ++i) {
    text += "%" + std::to_string(i) + " = input " + (op.tensors[i].integer ? "i64[" : "f32[");
    for (size_t d = 0; d < op.tensors[i].dims.size(); ++d)
      text += (d ? ", " : "") + std::to_string(op.tensors[i].dims[d]);
    text += "] R\n";
  }
  for (unsigned k = 0; k < op.results; ++k)
    text += (k ? ", %r" : "%r") + std::to_string(k);
  std::string attrs = op.attrs(locals(op, layouts)), partial = partial_text(stated, mesh_.size());
  text += " = " + op.op + " " + op.operands + " { " + attrs +
          (attrs.empty() || partial.empty() ? "" : ", ") + partial + " }\n";
  std::unique_ptr<Reader> &made = readers_[text];
  if (!made)
    made = read(text);
  return *made;
}

std::unique_ptr<ShardCheck::Reader> ShardCheck::read(const std::string &text) const {
  auto made = std::make_unique<Reader>();
  made->read = ir::read_text(text);
  INFO(text);
  INFO((made->read.errors.empty() ? "" : made->read.errors[0].message));
  REQUIRE(made->read.errors.empty());
  ir::Program &program = made->read.program;
  made->rules = std::make_unique<rules::Rules>(program);
  made->op = &made->rules->resolve(made->inst().op);
  REQUIRE(made->op->row);
  made->operands.read(program, made->inst().operands);
  for (ir::ValueId value : made->operands.values)
    made->positions.push_back(program.values[value].name.bits & ~ir::ValueName::kNumber);
  ir::Context local = program.contexts[made->inst().context];
  local.local = program.meshes[local.mesh].typed_axes();
  made->local = program.contexts.add(local);
  return made;
}

ShardCheck::Verdict ShardCheck::judge(const Situation &at, const Verdict *erased,
                                      const Replaced *replaced) {
  ir::Program &program = at.reader.read.program;
  const ir::Inst inst = at.reader.inst();
  ir::MeshId mesh = program.contexts[inst.context].mesh;
  std::vector<rules::TensorInfo> args;
  for (size_t place : at.reader.positions) {
    const OpOperand &tensor = at.op.tensors[place];
    ir::Type type =
        replaced && replaced->tensor == place ? replaced->type : type_of(at.layouts[place], mesh);
    type.set_gradient_free(tensor.integer);
    ir::Shape shape;
    shape.dtype = tensor.integer ? ir::DType::I64 : ir::DType::F32;
    for (int extent : local_dims(tensor.dims, at.layouts[place], mesh_))
      shape.dims.push_back(ir::Extent(extent));
    args.push_back(
        {program.types.add(erased ? type.without_shards() : type),
         program.shapes.add(std::move(shape)),
         erased ? ir::ShardSizesId() : sizes_of(program, tensor.dims, at.layouts[place], mesh_)});
  }
  std::vector<rules::ResultClaim> claims(inst.result_count);
  for (size_t k = 0; erased && claims.size() > 1 && k < claims.size(); ++k)
    claims[k].declared = program.types.add(erased->types[k].without_shards());
  if (at.op.declared && !erased)
    claims[0].declared = program.types.add(type_of(*at.op.declared, mesh));
  rules::Application app{program,
                         *at.reader.op,
                         inst.attrs,
                         erased ? at.reader.local : inst.context,
                         at.reader.operands.slots,
                         args,
                         claims};
  const rules::Outcome &out = at.reader.rules->apply(app);
  Verdict verdict;
  for (const rules::Violation &violation : out.violations)
    verdict.violations.insert(std::string(rules::info(violation).name));
  for (size_t k = 0; k < out.types.size(); ++k) {
    verdict.types.push_back(program.types[out.types[k]]);
    verdict.results.push_back(layout_of(verdict.types.back(), mesh_.size()));
    verdict.unknown |= !verdict.results.back();
    verdict.scales.push_back(number_of(program, verdict.types.back().scale, program.meshes[mesh]));
    verdict.sizes.push_back(k < out.sizes.size() ? out.sizes[k] : ir::ShardSizesId());
    verdict.shapes.push_back(numbers_of(program, out.shapes[k]));
  }
  verdict.accepted = verdict.violations.empty() && !verdict.unknown;
  return verdict;
}

ShardCheck::Values ShardCheck::compute(const Situation &at) {
  std::vector<Array> whole;
  std::vector<std::vector<Array>> local;
  for (size_t i = 0; i < at.op.tensors.size(); ++i) {
    whole.push_back(draw(at.op.tensors[i].dims, data_random_));
    local.push_back(distribute(whole.back(), at.layouts[i], mesh_, data_random_));
  }
  Values values;
  if (at.op.view) {
    whole[0].dims = {static_cast<int>(whole[0].data.size())};
    return {{std::move(whole[0])}, {std::move(local[0])}};
  }
  std::optional<std::vector<Array>> expected = at.op.meaning->run(whole);
  if (!expected)
    return values;
  values.expected = std::move(*expected);
  values.held.resize(values.expected.size());
  for (int r = 0; r < rank_count(mesh_); ++r) {
    std::vector<Array> operands;
    for (const std::vector<Array> &ranks : local)
      operands.push_back(ranks[static_cast<size_t>(r)]);
    std::optional<std::vector<Array>> results = at.op.meaning->run(operands);
    if (!results) {
      values.held.clear();
      return values;
    }
    for (size_t k = 0; k < results->size(); ++k)
      values.held[k].push_back(std::move((*results)[k]));
  }
  return values;
}

std::string ShardCheck::check_extents(const Situation &at, const Verdict &verdict,
                                      const Values &values) {
  const ir::Program &program = at.reader.read.program;
  for (size_t k = 0; k < verdict.results.size(); ++k) {
    const std::vector<int> &whole = values.expected[k].dims, &first = values.held[k][0].dims;
    if (verdict.shapes[k] && *verdict.shapes[k] != first)
      return "the shape is not that of the first rank";
    for (size_t d = 0; d < whole.size(); ++d) {
      const ir::UnevenDim *uneven = verdict.sizes[k].valid()
                                        ? program.shard_sizes[verdict.sizes[k]].find(unsigned(d))
                                        : nullptr;
      if (uneven && uneven->global != ir::Extent(whole[d]))
        return "the global extent is another";
      for (size_t r = 0; r < values.held[k].size(); ++r) {
        int at_block = block_of(*verdict.results[k], mesh_, d, static_cast<int>(r));
        int extent = uneven ? size_of_block(program, *uneven, at_block) : first[d];
        if (values.held[k][r].dims[d] != extent)
          return "the sizes of its shards are false";
      }
    }
  }
  return "";
}

std::optional<Array> ShardCheck::join(const Situation &at, const std::vector<Array> &held,
                                      const Layout &layout, const std::vector<int> &first,
                                      const ir::ShardSizes *sizes) const {
  if (!at.op.view)
    return assemble(held, layout, mesh_);
  std::vector<Array> blocks = held;
  for (size_t r = 0; r < blocks.size(); ++r) {
    blocks[r].dims = first;
    for (size_t d = 0; sizes && d < first.size(); ++d)
      if (const ir::UnevenDim *uneven = sizes->find(static_cast<unsigned>(d)))
        blocks[r].dims[d] = size_of_block(at.reader.read.program, *uneven,
                                          block_of(layout, mesh_, d, static_cast<int>(r)));
    if (element_count(blocks[r].dims) != blocks[r].data.size())
      return std::nullopt;
  }
  std::optional<Array> whole = assemble(blocks, layout, mesh_);
  if (whole && at.op.view_of_whole && whole->dims != *at.op.view_of_whole)
    return std::nullopt;
  if (whole)
    whole->dims = {static_cast<int>(whole->data.size())};
  return whole;
}

// With whatever sizes make it fit, if one dimension is cut.
std::optional<Array> ShardCheck::join_view(const Situation &at, const std::vector<Array> &held,
                                           const Layout &layout) const {
  const std::vector<int> &first = *at.op.view;
  if (std::optional<Array> even = join(at, held, layout, first, nullptr))
    return even;
  std::optional<unsigned> cut;
  size_t all = 0;
  for (size_t d = 0; d < first.size(); ++d)
    if (block_count(layout, mesh_, d) == static_cast<int>(held.size()))
      cut = static_cast<unsigned>(d);
  for (const Array &block : held)
    all += block.data.size();
  if (!cut || first[*cut] == 0)
    return std::nullopt;
  size_t others = element_count(first) / static_cast<size_t>(first[*cut]);
  ir::ShardSizes sizes;
  sizes.dims.push_back(
      {*cut, ir::Extent(static_cast<int64_t>(all / others)), ir::Extent(first[*cut]), {}});
  return all % others ? std::nullopt : join(at, held, layout, first, &sizes);
}

bool ShardCheck::is_right(const Situation &at, const Verdict &verdict, const Values &values,
                          size_t k) const {
  Array expected = values.expected[k];
  if (!verdict.scales[k] || (at.op.view && verdict.shapes[k] != at.op.view))
    return false;
  scale_by(expected, *verdict.scales[k]);
  const ir::ShardSizes *sizes =
      verdict.sizes[k].valid() ? &at.reader.read.program.shard_sizes[verdict.sizes[k]] : nullptr;
  std::vector<int> first = verdict.shapes[k].value_or(std::vector<int>());
  return equal(join(at, values.held[k], *verdict.results[k], first, sizes), expected);
}

std::string ShardCheck::check_accepted(const Situation &at, const Verdict &verdict) {
  bool varies = false;
  for (size_t i = 0; i < at.layouts.size(); ++i)
    varies |= at.layouts[i].has(ShardForm::Varying) && !at.op.tensors[i].gives_shape_only;
  for (unsigned draw = 0; draw < kAcceptedDraws; ++draw) {
    Values values = compute(at);
    if (values.held.empty())
      return std::string(values.expected.empty() ? "one device" : "some rank") + " cannot run it";
    if (values.held.size() != verdict.results.size())
      return "the number of results is another";
    for (size_t k = 0; k < values.held.size(); ++k) {
      const Layout &layout = *verdict.results[k];
      // What varies by no dimension has no whole; it may spread, and nothing more.
      bool right =
          varies ? !layout.has(ShardForm::Shard) && (layout.has(ShardForm::Varying) || at.stated ||
                                                     assemble(values.held[k], layout, mesh_))
                 : is_right(at, verdict, values, k);
      if (!right)
        return "result " + std::to_string(k) + " is not " + layout.print();
    }
    std::string problem = varies || at.op.view ? "" : check_extents(at, verdict, values);
    if (!problem.empty())
      return problem;
  }
  return check_erasure(at, verdict);
}

std::string ShardCheck::check_erasure(const Situation &at, const Verdict &verdict) {
  Verdict local = judge(at, &verdict);
  if (!local.accepted)
    return "refused after erasing shards: " + joined(local.violations);
  for (size_t a = 0; a < mesh_.size(); ++a) {
    bool donated = false;
    for (size_t i = 0; i < at.layouts.size(); ++i)
      donated |= at.op.tensors[i].shape_only && at.layouts[i].axes[a].form == ShardForm::Shard;
    for (size_t k = 0; k < verdict.results.size(); ++k) {
      ShardForm global = verdict.results[k]->axes[a].form, erased = local.results[k]->axes[a].form;
      bool same = (global == ShardForm::Shard ? ShardForm::Varying : global) == erased;
      if (!same && !(donated && erased == ShardForm::Replicate))
        return "after erasing shards result " + std::to_string(k) + " is " +
               local.results[k]->print() + ", not " + verdict.results[k]->print();
    }
  }
  return "";
}

std::vector<std::optional<Layout>> ShardCheck::unrefuted(const Situation &at,
                                                         const Verdict &verdict) {
  std::vector<std::vector<Layout>> left;
  bool unstated = verdict.violations.count("unstated-partial");
  for (unsigned d = 0; d < kMostDraws; ++d) {
    Values values = compute(at);
    if (values.held.empty())
      return {std::nullopt};
    bool any = false;
    for (size_t k = 0; k < values.expected.size(); ++k) {
      if (d == 0) {
        left.push_back(all_layouts(mesh_.size(), at.op.view ? at.op.view->size()
                                                            : values.expected[k].dims.size()));
        llvm::erase_if(left[k], [&](const Layout &layout) {
          for (size_t a = 0; a < mesh_.size(); ++a) {
            bool partial = layout.axes[a].form == ShardForm::Partial;
            // Stated, one result is P; of several those that are summed.
            if (at.stated >> a & 1 ? !partial && at.op.results == 1 : partial && unstated)
              return true;
          }
          return false;
        });
      }
      llvm::erase_if(left[k], [&](const Layout &layout) {
        if (at.op.view)
          return !equal(join_view(at, values.held[k], layout), values.expected[k]);
        Array expected = values.expected[k];
        if (layout.has(ShardForm::Partial))
          scale_by(expected, at.op.meaning->scale(k, at.layouts, mesh_));
        return !equal(assemble(values.held[k], layout, mesh_), expected);
      });
      any |= left[k].empty();
    }
    if (any)
      break;
  }
  std::vector<std::optional<Layout>> found;
  for (const std::vector<Layout> &layouts : left)
    found.push_back(layouts.empty() ? std::nullopt : std::optional(layouts[0]));
  return found;
}

void ShardCheck::check_refused(const Situation &at, const Verdict &verdict) {
  std::vector<std::optional<Layout>> found = unrefuted(at, verdict);
  std::string types;
  for (const std::optional<Layout> &layout : found) {
    if (!layout)
      return;
    types += (types.empty() ? "" : "; ") + layout->print();
  }
  ++counts.needless;
  bool donated = false;
  for (size_t i = 0; i < at.layouts.size(); ++i)
    donated |= at.op.tensors[i].shape_only && at.layouts[i].has(ShardForm::Shard);
  Needless &family = donated ? needless[{std::string(kDonated), ""}]
                             : needless[{at.op.name, joined(verdict.violations)}];
  if (family.count++ == 0)
    family.example = print(at.op, at.layouts) + (at.stated ? ", stated" : "") + " -> " + types;
}

void ShardCheck::check_unknown(const Situation &at) {
  ir::MeshId mesh = at.reader.read.program.contexts[at.reader.inst().context].mesh;
  const ir::AxisId axis{0};
  for (size_t i = 0; i < at.op.tensors.size(); ++i) {
    std::string others = at.op.name + at.op.operands + std::to_string(at.stated) + " " +
                         std::to_string(i) + at.op.attrs(locals(at.op, at.layouts));
    for (size_t k = 0; k < at.layouts.size(); ++k) {
      others += k == i ? ", ?" : ", " + at.layouts[k].print();
      for (int extent : local_dims(at.op.tensors[k].dims, at.layouts[k], mesh_))
        others += " " + std::to_string(extent);
    }
    if (!unknown_seen_.insert(others).second)
      continue;
    Replaced unknown{i, {}};
    unknown.type.set_mesh(mesh);
    std::vector<ir::Type> types(1, unknown.type);
    types.back().set_either(axis);
    for (ir::Kind kind : {ir::Kind::Replicate, ir::Kind::Reduced, ir::Kind::Invariant,
                          ir::Kind::Varying, ir::Kind::Partial}) {
      types.push_back(unknown.type);
      types.back().set_kind(axis, kind);
    }
    types.push_back(unknown.type);
    types.back().set_zero(axis);
    for (size_t d = 0; d < at.op.tensors[i].dims.size(); ++d) {
      types.push_back(unknown.type);
      types.back().set_kind(axis, ir::Kind::Varying);
      types.back().set_shard(axis, static_cast<unsigned>(d), 0);
    }
    bool always = true;
    for (const ir::Type &type : types) {
      Replaced one{i, type};
      always &= !judge(at, nullptr, &one).violations.empty();
    }
    unknown.type.set_unknown(axis);
    bool found = !judge(at, nullptr, &unknown).violations.empty();
    ++counts.unknown;
    counts.certain += found;
    if (found != always)
      fail(at, "operand " + std::to_string(i) + " unknown: " +
                   (always ? "nothing is found, whatever it is" : "found, but some type is right"));
  }
}

std::string ShardCheck::check_units(const Situation &at, const Verdict &verdict) {
  const std::vector<int> &view = *at.op.view;
  std::vector<int> local = local_dims(at.op.tensors[0].dims, at.layouts[0], mesh_);
  for (size_t a = 0; a < mesh_.size(); ++a) {
    const Layout::Place &from = at.layouts[0].axes[a], &to = verdict.results[0]->axes[a];
    if (to.form != ShardForm::Shard || view[to.dim] != 1 || local[from.dim] == 1)
      continue;
    for (uint8_t dim = 0; dim < view.size(); ++dim) {
      Layout layout = *verdict.results[0];
      for (size_t b = 0; b < mesh_.size(); ++b)
        if (at.layouts[0].axes[b] == from)
          layout.axes[b].dim = dim;
      Values values = compute(at);
      if (view[dim] != 1 && equal(join_view(at, values.held[0], layout), values.expected[0]))
        return "it cuts a dimension of one element, and " + layout.print() + " is right";
    }
  }
  return "";
}

bool ShardCheck::cuts(const OpCase &op, const std::vector<Layout> &layouts) const {
  for (size_t i = 0; i < layouts.size(); ++i)
    for (size_t d = 0; d < op.tensors[i].dims.size(); ++d)
      if (int count = block_count(layouts[i], mesh_, d);
          uneven_ ? op.tensors[i].dims[d] < count : op.tensors[i].dims[d] % count)
        return false;
  return true;
}

void ShardCheck::check(const OpCase &op, const std::vector<Layout> &layouts) {
  if (op.local) {
    OpCase whole = op;
    whole.local = false;
    for (size_t i = 0; i < layouts.size(); ++i)
      for (size_t d = 0; d < op.tensors[i].dims.size(); ++d)
        whole.tensors[i].dims[d] *= block_count(layouts[i], mesh_, d);
    return check(whole, layouts);
  }
  if (!cuts(op, layouts) || (op.fits && !op.fits(locals(op, layouts))))
    return;
  bool varies = std::any_of(layouts.begin(), layouts.end(),
                            [](const Layout &layout) { return layout.has(ShardForm::Varying); });
  bool stated_accepted = false;
  for (unsigned stated = 1u << mesh_.size(); stated-- > 0;) {
    Situation at{op, layouts, stated, reader(op, layouts, stated)};
    Verdict verdict = judge(at);
    if (mesh_.size() == 1 && !uneven_ && !op.declared)
      check_unknown(at);
    if (verdict.violations.count("needless-partial"))
      continue; // as without the statement
    if (verdict.accepted) {
      ++counts.accepted;
      stated_accepted = true;
      if (std::string problem = check_accepted(at, verdict); !problem.empty())
        fail(at, problem);
      if (at.op.view && !at.op.declared && !varies)
        if (std::string problem = check_units(at, verdict); !problem.empty())
          fail(at, problem);
    } else if (verdict.violations.empty()) {
      ++counts.silent;
      fail(at, "nothing is said, and nothing is known");
    } else {
      ++counts.refused;
      // What needs to be stated is not needlessly refused where it is not.
      if (!varies && !stated_accepted)
        check_refused(at, verdict);
    }
  }
}

void ShardCheck::fail(const Situation &at, const std::string &what) {
  std::string stated = at.stated ? ", stated " + std::to_string(at.stated) : "";
  failures_[at.op.name].push_back(print(at.op, at.layouts) + stated + ": " + what + " (" +
                                  mesh_text(mesh_) + ", seed " + std::to_string(seed_) + ")");
}

void ShardCheck::run_one(const OpCase &op, const std::vector<Layout> &layouts) {
  ++counts.cases;
  check(op, layouts);
}

void ShardCheck::run(const OpCase &op, size_t most) {
  ++counts.cases;
  std::vector<std::vector<Layout>> options;
  size_t all = 1;
  for (const OpOperand &tensor : op.tensors) {
    options.push_back(all_layouts(mesh_.size(), tensor.dims.size()));
    if (mesh_.size() == 1)
      options.back().push_back({{{ShardForm::Varying, 0}}, false});
    all *= std::min<size_t>(options.back().size(), 100000 / all + 1);
  }
  for (size_t i = 0; i < std::min(all, most); ++i) {
    std::vector<Layout> layouts;
    size_t code = i;
    for (const std::vector<Layout> &each : options) {
      layouts.push_back(each[all > most ? random_() % each.size() : code % each.size()]);
      layouts.back().reversed = reversed_;
      code /= each.size();
    }
    check(op, layouts);
  }
}

} // namespace spmd::property
