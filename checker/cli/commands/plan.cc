// `spmdlint plan 'FROM -> TO'`: the steps from one type to another on the same mesh, what each
// sends, and what no sequence of messages can beat.
#include "checker/cli/options.h"
#include "checker/cli/output.h"
#include "checker/cli/topology.h"
#include "checker/render/json_text.h"

#include "rules/redistribute/plan.h"
#include "rules/redistribute/prove.h"
#include "rules/redistribute/verify.h"
#include "rules/shards/sizes.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"
#include "ir/mesh/axis_scale.h"
#include "ir/support/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace spmd::checker {
namespace {

namespace rd = rules::redistribute;
using Json = nlohmann::ordered_json;

// What is asked for, read as a program of two inputs.
struct Asked {
  ir::Program program;
  rd::Request request;
  ir::AxisSet averaged;           // `Partial(avg)` that is reduced: by an average
  std::string problem;            // empty: none
  ExitCode code = ExitCode::Call; // of the problem; Findings: what is asked for breaks a rule

  // Whether one passes: none does through integers.
  bool gradient() const {
    return !program.types[request.source].gradient_free() &&
           !program.types[request.target].gradient_free();
  }
};

// What the first rank holds of each dimension.
ir::Shape block_of(const ir::Program &program, const ir::Type &type, ir::Shape shape, bool &even) {
  const ir::Mesh &mesh = program.meshes[ir::MeshId{0}];
  for (unsigned dim = 0; dim < shape.dims.size(); ++dim)
    for (ir::AxisId axis : ir::shards_of(type, dim)) {
      int64_t extent = shape.dims[dim].number(), ranks = mesh[axis].size();
      even &= extent % ranks == 0;
      shape.dims[dim] = ir::Extent((extent + ranks - 1) / ranks);
    }
  return shape;
}

// `f32[8, 4] [Shard(0)]`, extents global, in our own words: `f32[2@tp, 4]`. The second of two types
// may leave the extents to the first.
llvm::Expected<std::string> in_our_words(llvm::StringRef text, std::string &extents,
                                         const std::string &axes, ir::Dialect dialect) {
  size_t close = text.find(']');
  if (close != llvm::StringRef::npos &&
      text.take_front(close).find_first_of("({=") == llvm::StringRef::npos && text.front() != '[') {
    extents = text.take_front(close + 1).str();
    text = text.drop_front(close + 1).trim();
  }
  ir::ReadResult read =
      ir::read_text(fmt::format("mesh m {{ {} }}\n%x = input {} R\n", axes, extents));
  if (!read.errors.empty())
    return make_error(read.errors.front().message);
  ir::Program &program = read.program;
  llvm::Expected<ir::Type> type = ir::read_words(program, ir::MeshId{0}, text, dialect);
  if (!type)
    return type.takeError();
  ir::ShapeId whole = program.values[ir::ValueId{0}].shape;
  bool known = whole.valid() && program.shapes[whole].ranked &&
               llvm::all_of(program.shapes[whole].dims,
                            [](ir::Extent extent) { return extent.is_number(); });
  if (!known)
    return make_error("the extents are to be numbers, as in `f32[8, 4] [Shard(0)]`");
  bool even = true;
  ir::ShapeId block = program.shapes.add(block_of(program, *type, program.shapes[whole], even));
  // The framework cuts a strided shard in another way where blocks differ.
  if (!even && text.contains("_StridedShard"))
    return make_error("strided-uneven: axes against mesh order need even blocks");
  return ir::print_type(program, *type, block, even ? ir::ShapeId{} : whole);
}

// The axes on which addends of as many means as there are ranks are reduced; their sizes go out of
// the scale.
ir::AxisSet take_averages(ir::Program &program, ir::Type &from, const ir::Type &to) {
  ir::AxisSet axes;
  from = ir::canonical_scale(program, from);
  const ir::Type target = ir::canonical_scale(program, to);
  for (ir::AxisId axis : from.of(ir::Kind::Partial) - to.of(ir::Kind::Partial)) {
    if (ir::exponent_of(program, from.scale, from.mesh(), axis) !=
        ir::exponent_of(program, target.scale, from.mesh(), axis) + 1)
      continue;
    from.scale = ir::quotient(program, from.scale, ir::axis_scale(program, from.mesh(), axis));
    axes |= axis;
  }
  return axes;
}

Asked read_request(const Options &options) {
  Asked asked;
  auto wrong = [&](std::string problem) {
    asked.problem = std::move(problem);
    return std::move(asked);
  };
  auto [from, to] = llvm::StringRef(options.arguments.front()).split("->");
  if (to.empty() || options.mesh.empty())
    return wrong("`plan` takes `FROM -> TO` and --mesh");
  std::string ends[] = {from.trim().str(), to.trim().str()};
  std::string extents; // of the one before
  for (std::string &end : ends)
    if (options.dialect.value_or(ir::Dialect::Spmd) != ir::Dialect::Spmd) {
      llvm::Expected<std::string> ours =
          in_our_words(llvm::StringRef(end), extents, options.mesh, *options.dialect);
      if (!ours)
        return wrong(llvm::toString(ours.takeError()));
      end = std::move(*ours);
    }
  std::string text = fmt::format("mesh m {{ {} }}\n%from = input {}\n%to = input {}\n",
                                 options.mesh, ends[0], ends[1]);
  ir::ReadResult read = ir::read_text(text);
  if (!read.errors.empty())
    return wrong(read.errors.front().message);
  asked.program = std::move(read.program);
  ir::Program &program = asked.program;
  rules::TensorInfo args[2];
  for (uint32_t i = 0; i < 2; ++i) {
    const ir::Value value = program.values[ir::ValueId{i}];
    ir::Type type = value.declared.valid() ? program.types[value.declared] : ir::Type();
    type.set_mesh(ir::MeshId{0});
    // What is not named is replicated.
    ir::AxisSet rest = program.meshes[ir::MeshId{0}].typed_axes() - type.claimed();
    type.set_kind(rest, ir::Kind::Replicate);
    bool differentiable =
        value.shape.valid() && ir::differentiable(program.shapes[value.shape].dtype);
    type.set_gradient_free(!differentiable || value.requires_grad == ir::Tristate::False);
    args[i] = {program.types.add(type), value.shape, {}};
    rules::DeclaredSizes sizes =
        rules::declared_sizes(program, type, value.shape, value.global_shape, 0);
    if (sizes.problem)
      return wrong("the local extents do not follow from the global ones");
    args[i].sizes = sizes.sizes;
  }
  ir::Type source = program.types[args[0].type];
  asked.averaged = take_averages(program, source, program.types[args[1].type]);
  args[0].type = program.types.add(source);
  asked.request.source = args[0].type;
  asked.request.target = args[1].type;
  asked.request.shape = rules::global_shape(program, program.types[args[0].type], args[0]);
  ir::ShapeId other = rules::global_shape(program, program.types[args[1].type], args[1]);
  if (!other.valid() || asked.request.shape != other)
    return wrong("the two types are not of one tensor: their global shapes differ");
  if (!rd::can_be_planned(program, asked.request))
    return wrong("the extents are no numbers, or too large");
  asked.code = ExitCode::Findings; // what follows
  asked.request.cap = options.memory;
  asked.request.gradient = !options.forward_price;
  for (const rules::TensorInfo &arg : args)
    if (std::optional<rules::Violation> blocks = rd::refuse_blocks(program, arg))
      return wrong(std::string(rules::info(*blocks).name));
  if (std::optional<rules::Violation> refused = rd::refuse(program, asked.request))
    return wrong(fmt::format("{}: {}", rules::info(*refused).name,
                             ir::print_axes(program, ir::MeshId{0}, rules::axes_of(*refused))));
  return asked;
}

Json json_of(const Asked &asked, const rd::Plan &plan, const rd::Topology &topology,
             unsigned rank) {
  const ir::Program &program = asked.program;
  Json steps = Json::array();
  for (const rd::Step &step : plan.steps) {
    Json axes = Json::array();
    for (ir::AxisId axis : step.axes)
      axes.push_back(program.strings[program.meshes[ir::MeshId{0}][axis].name].str());
    steps.push_back({{"step", rd::print(program, step, rank)},
                     {"op", std::string(rules::name_of(step.op))},
                     {"axes", std::move(axes)},
                     {"type", rd::print_spec(program, program.types[step.after], rank)},
                     {"bytes", step.bytes},
                     {"padded_bytes", step.padded_bytes},
                     {"backward_bytes", asked.gradient() ? Json(step.backward_bytes) : Json()},
                     {"hops", step.hops}});
  }
  Json json{{"steps", std::move(steps)},
            {"bytes", plan.bytes},
            {"padded_bytes", plan.padded_bytes},
            {"backward_bytes", asked.gradient() ? Json(plan.backward_bytes) : Json()},
            {"collectives", plan.collectives},
            {"peak_bytes", plan.peak_bytes},
            {"cap", plan.cap == rd::kNoCap ? Json() : Json(plan.cap)},
            {"within_cap", plan.within_cap},
            {"bound", plan.bound ? Json(*plan.bound) : Json()},
            {"proven", plan.proven}};
  if (asked.averaged)
    json["averaged"] = ir::print_axes(program, ir::MeshId{0}, asked.averaged);
  if (topology.in_time)
    json["microseconds"] = static_cast<double>(plan.price) / 1e9;
  return json;
}

std::string text_of(const Asked &asked, const rd::Plan &plan, const rd::Topology &topology,
                    unsigned rank) {
  const ir::Program &program = asked.program;
  std::string text =
      fmt::format("{}\n", rd::print_spec(program, program.types[asked.request.source], rank));
  for (const rd::Step &step : plan.steps)
    text += fmt::format(
        "  {:<24} {:<20} {} bytes{}{}\n", rd::print(program, step, rank),
        rd::print_spec(program, program.types[step.after], rank), step.bytes,
        step.padded_bytes == step.bytes ? "" : fmt::format(" ({} padded)", step.padded_bytes),
        asked.gradient() ? fmt::format(", {} backward", step.backward_bytes) : "");
  if (asked.averaged)
    text += fmt::format("the sum over {} is an average: op = avg\n",
                        ir::print_axes(program, ir::MeshId{0}, asked.averaged));
  text += fmt::format("{} bytes forward, {}, {} collective{}, peak {}\n", plan.bytes,
                      asked.gradient() ? fmt::format("{} backward", plan.backward_bytes)
                                       : "no gradient",
                      plan.collectives, plan.collectives == 1 ? "" : "s", plan.peak_bytes);
  if (topology.in_time)
    text += fmt::format("{:.3f} microseconds\n", static_cast<double>(plan.price) / 1e9);
  if (plan.bound)
    text += plan.bytes == *plan.bound ? "bytes == bound\n"
                                      : fmt::format("bound {} bytes\n", *plan.bound);
  text += plan.proven ? "cheapest of all sequences of steps\n"
                      : "the search was cut short: a cheaper sequence may exist\n";
  if (!plan.within_cap)
    text += fmt::format("above --memory: every sequence needs more than {} bytes, this one {}\n",
                        plan.cap, plan.peak_bytes);
  return text;
}

std::string proof_of(Asked &asked, const rd::Plan &plan, const rd::Topology &topology) {
  rd::Proof proof = rd::prove(asked.program, asked.request, topology, plan);
  SPMD_CHECK(proof != rd::Proof::NotCheapest, "a plan that is said to be the cheapest is not");
  return proof == rd::Proof::Cheapest ? "no cheaper sequence among all states"
                                      : "too many states to look at each";
}

} // namespace

ExitCode run_plan(const Options &options) {
  if (options.arguments.size() != 1)
    return wrong_call("`plan` takes `FROM -> TO` and --mesh");
  rd::Topology topology;
  if (!options.topology.empty())
    if (std::string problem = read_topology(options.topology, topology); !problem.empty())
      return wrong_call(problem);
  Asked asked = read_request(options);
  if (!asked.problem.empty()) {
    say(asked.problem);
    return asked.code;
  }
  rd::Planner planner(asked.program, topology);
  const rd::Plan &plan = planner.plan(asked.request);
  rules::Rules rules(asked.program);
  std::string wrong = rd::verify(asked.program, rules, asked.request, plan);
  SPMD_CHECK(wrong.empty(), wrong.c_str());
  unsigned rank = static_cast<unsigned>(asked.program.shapes[asked.request.shape].dims.size());
  std::string proof = options.prove ? proof_of(asked, plan, topology) : std::string(), text;
  if (options.table == TableFormat::Json) {
    Json json = json_of(asked, plan, topology, rank);
    if (options.prove)
      json["proof"] = proof;
    text = print_json(json, 2) + "\n";
  } else {
    text = text_of(asked, plan, topology, rank) + (options.prove ? proof + "\n" : "");
  }
  return print_text(text);
}

} // namespace spmd::checker
