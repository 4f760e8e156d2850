// Extents are small: every sample is run for each kind of each operand.
#include "tests/property/row_samples.h"

#include "checker/check.h"
#include "checker/operand_list.h"
#include "ir/input/input.h"
#include "rules/bind.h"
#include "rules/factors/shape_rule.h"
#include "rules/ops/registry.h"
#include "rules/violations/operands.h"
#include "tests/unit/catch.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

namespace spmd::property {

namespace {

constexpr RowSample kSamples[] = {
    // Views.
    {"f32[2, 6]", "%r = reshape %0 { shape = [4, 3] }"},
    {"f32[2, 6]", "%r = reshape %0 { shape = [2, 3, 2] }"},
    {"f32[2, 6]; f32[12]", "%r = view_as %0, %1"},
    {"f32[2, 3]", "%r = flatten %0"},
    {"f32[2, 1, 3]", "%r = squeeze %0 { dim = 1 }"},
    {"f32[2, 3]", "%r = unsqueeze %0 { dim = 1 }"},
    {"f32[2, 3, 2]", "%r = permute_dims %0 { dims = [2, 0, 1] }"},
    {"f32[2, 3]", "%r = transpose %0 { dim0 = 0, dim1 = 1 }"},
    {"f32[2, 3, 2]", "%r = movedim %0 { source = 0, destination = 2 }"},
    {"f32[1, 3]", "%r = expand %0 { size = [2, 2, 3] }"},
    {"f32[1, 3]; f32[2, 3]", "%r = expand_as %0, %1"},
    {"f32[3]", "%r = jax.broadcast_in_dim %0 { shape = [3, 2], broadcast_dimensions = [0] }"},
    {"f32[2, 3]", "%r = repeat %0 { repeats = [2, 1] }"},
    // Joined and cut.
    {"f32[2, 3]; f32[2, 2]", "%r = cat [%0, %1] { dim = 1 }"},
    {"f32[2, 3]; f32[2, 3]", "%r = stack [%0, %1]"},
    {"f32[5, 2]", "%r, %s = split %0 { sizes = [2, 3] }"},
    {"f32[4, 2]", "%r, %s = chunk %0 { chunks = 2 }"},
    {"f32[3, 2]", "%r, %s, %t = unbind %0"},
    {"f32[2]", "%r = jax.random_bits %0 { shape = [3], bit_width = 32 }"},
    {"f32[4, 2]", "%r = slice %0 { start = 1, end = 3 }"},
    {"f32[4, 2]; i64[]", "%r = narrow %0, %1 { dim = 0, length = 2 }"},
    {"f32[4, 2]", "%r = select %0 { dim = 0, index = 1 }"},
    {"f32[4, 2]", "%r = jax.slice %0 { start_indices = [1, 0], limit_indices = [3, 2] }"},
    {"f32[4, 2]; i64[]; i64[]", "%r = dynamic_slice %0, [%1, %2] { slice_sizes = [2, 2] }"},
    {"f32[2, 2]", "%r = slice_backward %0 { input_sizes = [4, 2], dim = 0, start = 1, end = 3 }"},
    {"f32[4, 2]; f32[2, 2]", "%r = slice_scatter %0, %1 { dim = 0, start = 1, end = 3 }"},
    {"f32[4, 2]; f32[2, 2]; i64[]", "%r = dynamic_update_slice %0, %1, [%2]"},
    {"f32[2, 3]; f32[]", "%r = constant_pad %0, %1 { pad = [1, 1] }"},
    {"f32[2, 3]; f32[]", "%r = jax.pad %0, %1 { padding_config = [[1, 0, 0], [0, 0, 0]] }"},
    // Products.
    {"f32[2, 3]; f32[3, 2]", "%r = einsum [%0, %1] { equation = \"ij,jk->ki\" }"},
    {"f32[2, 3]; f32[3, 2]; f32[2]", "%r = einsum [%0, %1, %2] { equation = \"ij,jk,k->i\" }"},
    {"f32[2, 3]", "%r = einsum [%0] { equation = \"ij->j\" }"},
    {"f32[2, 3, 2]; f32[2, 3]",
     "%r = tensordot %0, %1 { dims_self = [1, 2], dims_other = [1, 0] }"},
    {"f32[2, 3]; f32[2, 3]",
     "%r = dot_general [%0, %1] { dimension_numbers = [[[1], [1]], [[0], [0]]] }"},
    // Indexed.
    {"f32[4, 2]; i64[3]", "%r = index %0, [%1]"},
    {"f32[3, 2]; i64[2]; i64[2]", "%r = index %0, [%1, %2]"},
    {"f32[4, 2]; i64[3]; f32[3, 2]", "%r = index_put %0, [%1], %2"},
    {"f32[4, 2]; i64[3]; f32[3, 2]", "%r = index_put_add %0, [%1], %2"},
    {"f32[4, 2]; i64[3]; f32[3]", "%r = put %0, %1, %2"},
    {"f32[4, 2]; i64[3, 1]",
     "%r = jax.gather %0, %1 { dimension_numbers = [[1], [0], [0]], slice_sizes = [1, 2] }"},
    {"f32[3, 2]; f32[3, 2]", "%r, %s = sort_together [%0, %1] { dim = 0 }"},
    {"f32[4, 2]; f32[]", "%r = jax.reduce [%0, %1] { dimensions = [0] }"},
    // One step, one sequence.
    {"f32[1, 1, 2]; f32[1, 1, 2]; f32[1, 1, 2]; f32[2, 2]; f32[2, 2]; f32[1, 2]",
     "%r, %s, %t, %u, %v, %w, %x = recurrent_layer_backward %0, null, null, %1, %2, %3, %4, null, "
     "null, %5"},
    {"f32[1, 1, 2]; f32[1, 1, 2]; f32[1, 1, 2]; f32[1, 2]; f32[2, 2]; f32[2, 2]; f32[1, 2]",
     "%r, %s, %t, %u, %v, %w, %x = recurrent_layer_backward_of_output %0, %1, %2, %3, null, %4, "
     "%5, null, null, %6"},
    {"f32[1, 2]; f32[1, 1, 2]; f32[1, 1, 2]; f32[1, 2]; f32[2, 2]; f32[2, 2]; f32[1, 2]",
     "%r, %s, %t, %u, %v, %w, %x = recurrent_layer_backward_of_state %0, %1, %2, %3, %4, %5, null, "
     "null, %6"},
    {"f32[1, 1, 2]; f32[1, 1, 2]; f32[1, 1, 2]; f32[1, 2]; f32[1, 2]; f32[2, 2]; f32[2, 2]; "
     "f32[1, 2]",
     "%r, %s, %t, %u, %v, %w, %x = recurrent_layer_backward_of_all %0, %1, %2, %3, %4, %5, %6, "
     "null, null, %7"},
    {"i64[]", "%r = random %0 { size = [2, 2] }"},
};

// A program that ends with the statement.
std::string sample_program(const RowSample &sample) {
  std::string text = "trace { mode = local }\nmesh m { tp = 2 }\n";
  llvm::SmallVector<llvm::StringRef, 4> inputs;
  llvm::StringRef(sample.inputs).split(inputs, ';', -1, false);
  for (size_t i = 0; i < inputs.size(); ++i)
    text += "%" + std::to_string(i) + " = input " + inputs[i].trim().str() + " R\n";
  return text + sample.statement + "\n";
}

} // namespace

std::span<const RowSample> row_samples() { return kSamples; }

ReadSample read_sample(const RowSample &sample) {
  INFO(sample.statement);
  ir::ReadResult read = ir::read_text(sample_program(sample));
  REQUIRE(read.errors.empty());
  ir::Program &program = read.program;
  const ir::Inst &inst = program.insts[ir::InstId{program.main.last.index - 1}];
  rules::ResolvedOp op = rules::resolve_spelling(program.op_name(inst.op), "spmd");
  REQUIRE(op.row);
  checker::OperandList operands;
  operands.read(program, inst.operands);
  std::vector<rules::TensorInfo> args;
  for (ir::ValueId value : operands.values)
    args.push_back({program.values[value].declared, program.values[value].shape});
  std::vector<rules::ResultClaim> claims(inst.result_count);
  rules::Application app{program, op, inst.attrs, inst.context, operands.slots, args, claims};
  const rules::Equation &equation = op.row->equation.equation;
  rules::OperandMismatch problem;
  std::optional<rules::Binding> binding = rules::bind_operands(app, equation, problem);
  REQUIRE(binding);
  rules::Outcome out;
  rules::FactorMap map = rules::map_factors(app, equation, *binding, out);
  CHECK(out.violations.empty());
  REQUIRE(!map.results.empty());
  REQUIRE(map.results[0]);
  std::vector<std::vector<uint16_t>> members(equation.operand_count);
  for (unsigned i = 0; i < equation.operand_count; ++i)
    for (unsigned k = 0; (*binding)[i] && k < (*binding)[i]->count; ++k)
      members[i].push_back(static_cast<uint16_t>((*binding)[i]->first + k));
  ReadSample made{op.row, plan_of_map(map, members), {}, {}, {}, inst.result_count};
  for (const std::vector<uint16_t> &operand : members)
    for (uint16_t arg : operand)
      made.order.push_back(program.values[operands.values[arg]].name.bits &
                           ~ir::ValueName::kNumber);
  for (const ir::Param &param : program.params) {
    const ir::Shape &shape = program.shapes[program.values[param.value].shape];
    made.integer.push_back(ir::info(shape.dtype).form == ir::DTypeClass::Integer);
    made.inputs.emplace_back();
    for (ir::Extent extent : shape.dims)
      made.inputs.back().push_back(static_cast<int>(extent.number()));
  }
  return made;
}

} // namespace spmd::property
