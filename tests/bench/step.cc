// Emits the ops of the step. Activations are sharded over tokens on dp, cp and tp (sequence
// parallelism), matrices over dp (gathered before use) and tp; the comment behind a value is its
// kind on (dp, cp, tp).
#include "tests/bench/step.h"

namespace spmd::bench {

using ir::AttrValue;
using ir::DType;

Step::Step(const StepSize &size) : size_(size), builder_(program_) {}

Val Step::emit(llvm::StringRef op, Args args, Attrs attrs, std::vector<int64_t> dims, DType dtype) {
  llvm::SmallVector<ir::Operand, 4> operands;
  for (const Arg &arg : args)
    operands.push_back(arg.operand);
  ir::AttrDict dict;
  for (auto [key, value] : attrs)
    dict.attrs.push_back({builder_.string(key), value});
  ir::Shape shape{.dtype = dtype, .ranked = true, .dims = {}};
  shape.dims.assign(dims.begin(), dims.end());
  ir::Value value;
  value.name = ir::ValueName::number(names_++);
  value.shape = program_.shapes.add(shape);
  ir::Frame frame{.file = file_, .line = line_, .col = 13, .function = function_, .caller = {}};
  ir::Inst inst;
  inst.op = ir::OpNameId{builder_.string(op).index};
  inst.attrs = builder_.attrs(std::move(dict));
  inst.operands = program_.operand_lists.add(operands);
  inst.first_result = *builder_.define(value);
  inst.result_count = 1;
  inst.loc = builder_.location(program_.frames.add(frame), scope_);
  inst.context = context_;
  inst.phase = phase_;
  ++line_;
  builder_.add(inst, 0);
  return {inst.first_result, std::move(dims), dtype};
}

Val Step::emit(llvm::StringRef op, Args args, Attrs attrs, std::vector<int64_t> dims) {
  return emit(op, args, attrs, std::move(dims), DType::BF16);
}

// The new value of what is written in place.
Val Step::in_place(llvm::StringRef op, const Val &target, std::initializer_list<Arg> rest,
                   Attrs attrs) {
  llvm::SmallVector<ir::Operand, 4> operands = {ir::Operand::value(target.id, true)};
  for (const Arg &arg : rest)
    operands.push_back(arg.operand);
  Val made = emit(op, {}, attrs, target.dims, target.dtype);
  program_.values[made.id].alias_of = target.id;
  builder_.inst(builder_.body_size() - 1).operands = program_.operand_lists.add(operands);
  return made;
}

Val Step::linear(const Val &x, const Val &w, Attrs attrs) {
  return emit("linear", {x, w}, attrs, {x.dims[0], w.dims[0]});
}

Val Step::matmul(const Val &a, const Val &b, Attrs attrs) {
  std::vector<int64_t> dims = a.dims;
  dims.back() = b.dims.back();
  return emit("matmul", {a, b}, attrs, dims);
}

Val Step::transpose(const Val &a) {
  std::vector<int64_t> dims = a.dims;
  size_t n = dims.size();
  std::swap(dims[n - 1], dims[n - 2]);
  return emit(
      "transpose", {a},
      {{"dim0", AttrValue::integer(int64_t(n) - 2)}, {"dim1", AttrValue::integer(int64_t(n) - 1)}},
      dims, a.dtype);
}

Val Step::gather(const Val &a, const char *axis, unsigned dim) {
  std::vector<int64_t> dims = a.dims;
  dims[dim] *= *axis == 'd' ? size_.dp : *axis == 'c' ? size_.cp : size_.tp;
  std::string from = "S(" + std::to_string(dim) + ")";
  return emit("all_gather", {a}, {{"axis", axes({axis})}, {"src", kind(from)}, {"dst", kind("R")}},
              dims, a.dtype);
}

Val Step::scatter(const Val &a, const char *axis, unsigned dim) {
  std::vector<int64_t> dims = a.dims;
  dims[dim] /= *axis == 'd' ? size_.dp : *axis == 'c' ? size_.cp : size_.tp;
  std::string to = "S(" + std::to_string(dim) + ")";
  return emit("reduce_scatter", {a},
              {{"axis", axes({axis})}, {"op", word("sum")}, {"src", kind("P")}, {"dst", kind(to)}},
              dims, a.dtype);
}

Val Step::reduce(const Val &a, AttrValue over, const char *dst) {
  return like("all_reduce", a,
              {{"axis", over}, {"op", word("sum")}, {"src", kind("P")}, {"dst", kind(dst)}});
}

Step::Arg Step::number(double value) {
  return Arg(ir::Operand::literal(builder_.literal(AttrValue::number(value))));
}

AttrValue Step::axes(std::initializer_list<llvm::StringRef> names) {
  ir::AxisRefs refs;
  for (llvm::StringRef name : names)
    refs.refs.push_back({{}, builder_.string(name)});
  return AttrValue::axes(program_.axis_refs.add(std::move(refs)));
}

AttrValue Step::ints(std::initializer_list<int64_t> numbers) {
  ir::AttrList list;
  for (int64_t number : numbers)
    list.items.push_back(AttrValue::integer(number));
  return AttrValue::list(program_.lists.add(std::move(list)));
}

void Step::declare_tables() {
  ir::Mesh mesh{.name = builder_.string("main"), .axes = {}, .within = {}, .typed = {}};
  const std::pair<const char *, int64_t> kAxes[] = {
      {"dp", size_.dp}, {"cp", size_.cp}, {"tp", size_.tp}};
  for (auto [name, count] : kAxes) {
    ir::Axis axis;
    axis.name = builder_.string(name);
    axis.layout = {{count, 0}};
    mesh.axes.push_back(axis);
  }
  SPMD_CHECK(finish(mesh, program_.strings).empty(), "the mesh of the bench is malformed");
  ir::MeshId id = program_.meshes.add(std::move(mesh));
  program_.contexts = {};
  program_.contexts.add({.mesh = id, .local = {}});
  program_.mode = ir::Mode::Local;
  program_.phase = ir::ProgramPhase::Step;
  program_.world = size_.dp * size_.cp * size_.tp;
  file_ = program_.files.add({builder_.string("train/model.py"), {}});
  context_ = ir::ContextId{0};
}

// `kinds`: a letter for dp, cp and tp.
Val Step::declare(ir::Role role, const std::string &name, llvm::StringRef kinds,
                  std::vector<int64_t> dims, DType dtype) {
  ir::Type type;
  type.set_mesh(ir::MeshId{0});
  type.scale = program_.one();
  for (uint8_t axis = 0; axis < kinds.size(); ++axis)
    type.set_kind(ir::AxisId{axis}, ir::parse_kind(kinds.substr(axis, 1))->kind);
  // An axis of size 1 plays no part in any type.
  type.clear(type.claimed() - program_.meshes[ir::MeshId{0}].typed_axes());
  ir::Shape shape{.dtype = dtype, .ranked = true, .dims = {}};
  shape.dims.assign(dims.begin(), dims.end());
  ir::Value value;
  value.name = ir::ValueName::number(names_++);
  value.declared = program_.types.add(type);
  value.shape = program_.shapes.add(shape);
  ir::Param param;
  param.value = *builder_.define(value);
  param.role = role;
  param.name = builder_.string(name);
  program_.params.push_back(param);
  program_.param_origins.push_back(0);
  return {param.value, std::move(dims), dtype};
}

Step::Weight Step::weight(const std::string &name, bool sharded, std::vector<int64_t> dims) {
  Weight made;
  made.sharded = sharded;
  made.scope = builder_.string("optimizer." + name);
  llvm::StringRef kinds = sharded ? "VRV" : "RRR";
  made.value = declare(ir::Role::Param, name, kinds, dims, DType::BF16);
  made.first = declare(ir::Role::OptState, name + ".exp_avg", kinds, dims, DType::F32);
  made.second = declare(ir::Role::OptState, name + ".exp_avg_sq", kinds, dims, DType::F32);
  return made;
}

// x (V,V,V), weight (R,R,R).
Val Step::norm(const Val &x, const Weight &weight, Val &hat, Val &inverse) {
  at("RMSNorm.forward", 10);
  Val wide = cast(x, DType::F32);
  Val mean =
      emit("mean", {like("square", wide)},
           {{"dim", ints({1})}, {"keepdim", AttrValue::boolean(true)}}, {x.dims[0], 1}, DType::F32);
  inverse = like("rsqrt", binary("add", mean, number(1e-5)));
  hat = cast(mul(wide, inverse), DType::BF16);
  return mul(hat, weight.value);
}

Val Step::norm_backward(const Val &g, const Val &hat, const Val &inverse, Weight &weight) {
  at("RMSNorm.forward", 16);
  Val partial =
      emit("sum", {mul(g, hat)}, {{"dim", ints({0})}, {"partial", axes({"dp", "cp", "tp"})}},
           weight.value.dims); // P,P,P
  program_.values[partial.id].grad_of = weight.value.id;
  weight.gradient = reduce(partial, axes({"dp", "cp", "tp"}), "R");
  Val scaled = cast(mul(g, weight.value), DType::F32);
  Val wide_hat = cast(hat, DType::F32);
  Val mean =
      emit("mean", {mul(scaled, wide_hat)},
           {{"dim", ints({1})}, {"keepdim", AttrValue::boolean(true)}}, {g.dims[0], 1}, DType::F32);
  Val centred = binary("sub", scaled, mul(wide_hat, mean));
  return cast(mul(centred, inverse), DType::BF16);
}

// The rotation of query and key heads by position; its adjoint is the rotation back.
Val Step::rotate(const Val &x, bool back) {
  int64_t half = x.dims.back() / 2;
  std::vector<int64_t> halves = x.dims;
  halves.back() = half;
  auto slice = [&](int64_t start) {
    return emit("slice", {x},
                {{"dim", AttrValue::integer(2)},
                 {"start", AttrValue::integer(start)},
                 {"end", AttrValue::integer(start + half)}},
                halves);
  };
  Val low = slice(0), high = slice(half);
  Val turned = emit("cat",
                    {Arg(ir::Operand::list(program_.operand_lists.add(
                        {ir::Operand::value(like("neg", high).id), ir::Operand::value(low.id)})))},
                    {{"dim", AttrValue::integer(2)}}, x.dims);
  return binary(back ? "sub" : "add", mul(x, cosine_), mul(turned, sine_));
}

void Step::weight_gradient(Weight &weight, const Val &g, const Val &x) {
  reduce_gradient(weight, matmul(transpose(g), x, {{"partial", axes({"dp", "cp"})}})); // P,P,V
}

void Step::reduce_gradient(Weight &weight, const Val &partial) {
  Val mine = scatter(partial, "dp"); // V,P,V
  program_.values[mine.id].grad_of = weight.value.id;
  weight.gradient = reduce(mine, axes({"cp"}), "R");
}

} // namespace spmd::bench
