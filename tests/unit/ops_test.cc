// The op table read through small programs: spellings, orders of operands, choices by argument, and
// the shapes and element types of results.
#include "tests/unit/catch.h"

#include "checker/check.h"
#include "ir/dialect/print_type.h"
#include "ir/input/input.h"
#include "rules/ops/registry.h"
#include "rules/transitions/transition.h"
#include "rules/violations/operands.h"

#include <variant>

using namespace spmd;

namespace {

struct ShapeCase {
  const char *inputs;    // shapes, separated by `;`: %0, %1, ...
  const char *statement; // defines what is expected
  const char *expected;  // shapes of its results; `?` where none follows
};

std::string program_text(const ShapeCase &test) {
  std::string text = "trace { mode = local }\nmesh m { tp = 2 }\nsymbol s0 { min = 2 }\n";
  llvm::SmallVector<llvm::StringRef, 4> inputs;
  llvm::StringRef(test.inputs).split(inputs, ';', -1, false);
  for (size_t i = 0; i < inputs.size(); ++i)
    text += "%" + std::to_string(i) + " = input " + inputs[i].trim().str() +
            " R { requires_grad = false }\n";
  return text + test.statement + "\n";
}

std::string shapes_of_last(ir::Program &program, const checker::CheckResult &result) {
  const ir::Inst &inst = program.insts[ir::InstId{program.main.last.index - 1}];
  std::string text;
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    ir::ShapeId shape = result.shapes[inst.result(i).index];
    text += (i ? "; " : "") + (shape.valid() ? ir::print_shape(program, shape) : "?");
  }
  return text;
}

std::string name_of(const rules::Violation &violation) {
  return std::string(rules::info(violation).name);
}

std::string name_of(const checker::Finding &finding) {
  if (const auto *bad = finding.violation.as<rules::ShapeMismatch>())
    return bad->what + ": " + bad->expected + ", " + bad->found;
  if (const auto *bad = finding.violation.as<rules::OperandMismatch>())
    return bad->expected + "; " + bad->found;
  return name_of(finding.violation);
}

void check_shapes(llvm::ArrayRef<ShapeCase> cases, bool expect_finding) {
  for (const ShapeCase &test : cases) {
    INFO(test.statement);
    ir::ReadResult read = ir::read_text(program_text(test));
    for (const ir::InputError &error : read.errors)
      FAIL_CHECK(error.message);
    if (!read.errors.empty())
      continue;
    checker::CheckResult result = checker::check(read.program);
    std::string findings;
    for (const checker::Finding &finding : result.findings)
      findings += name_of(finding);
    CHECK((expect_finding ? findings : findings + shapes_of_last(read.program, result)) ==
          test.expected);
  }
}

constexpr ShapeCase kPointwise[] = {
    {"f32[8, 16]; f32[16]", "%r = add %0, %1", "f32[8, 16]"},
    {"f32[8, 1]; f32[1, 16]", "%r = mul %0, %1", "f32[8, 16]"},
    {"bf16[8]; f32[]", "%r = mul %0, %1", "bf16[8]"},
    {"i64[8]; f32[]", "%r = mul %0, %1", "f32[8]"},
    {"bf16[8]; f32[8]", "%r = add %0, %1", "f32[8]"},
    {"bf16[8]; f16[8]", "%r = add %0, %1", "f32[8]"},
    {"bf16[8]", "%r = add %0, 1.5", "bf16[8]"},
    {"i64[8]", "%r = mul %0, 2", "i64[8]"},
    {"i64[8]", "%r = mul %0, 2.5", "f32[8]"},
    {"bool[8]", "%r = add %0, 1", "i64[8]"},
    {"i64[8]; i64[8]", "%r = div %0, %1", "f32[8]"},
    {"i64[8]; i64[8]", "%r = div %0, %1 { rounding_mode = \"floor\" }", "i64[8]"},
    {"i64[8]", "%r = exp %0", "f32[8]"},
    {"f32[8, s0]; f32[s0]", "%r = maximum %0, %1", "f32[8, s0]"},
    {"f32[8]; f32[8]", "%r = eq %0, %1", "bool[8]"},
    {"f32[8]", "%r = cast %0 { dtype = bf16 }", "bf16[8]"},
    {"f32[8]", "%r = aten._to_copy.default %0 { dtype = i64 }", "i64[8]"},
    {"f32[8]", "%r = long %0", "i64[8]"},
    {"f32[8]; bf16[2]", "%r = type_as %0, %1", "bf16[8]"},
    {"bool[8]; f32[8]", "%r = where %0, %1, 0.0", "f32[8]"},
    {"f32[8, 4]; bool[4]", "%r = masked_fill %0, %1 { value = 0 }", "f32[8, 4]"},
    {"f32[8]", "%r = clamp %0 { min = 0 }", "f32[8]"},
    {"f32[8, 6]", "%r = glu %0", "f32[8, 3]"},
    {"f32[8, 6]", "%r = glu %0 { dim = 0 }", "f32[4, 6]"},
    {"f32[8, 6]; f32[8, 6]", "%r = swiglu %0, %1", "f32[8, 6]"},
    {"bf16[8]; f32[8]", "%r = aten.add_.Tensor mut %0, %1", "bf16[8]"},
    {"f32[8]; f32[8]", "%r = aten.rsub.Tensor %0, %1", "f32[8]"},
    {"f32[8]", "%r = aten.pow.Tensor_Scalar %0, 2", "f32[8]"},
    {"f32[4, 2]; f32[2]; f32[3]", "%r, %s, %t = _foreach_mul.Scalar [%0, %1, %2], 2.0", "?; ?; ?"},
};

constexpr ShapeCase kContraction[] = {
    {"f32[8, 16]; f32[16, 4]", "%r = matmul %0, %1", "f32[8, 4]"},
    {"f32[2, 8, 16]; f32[16, 4]", "%r = matmul %0, %1", "f32[2, 8, 4]"},
    {"f32[2, 1, 8, 16]; f32[3, 16, 4]", "%r = matmul %0, %1", "f32[2, 3, 8, 4]"},
    {"f32[16]; f32[16, 4]", "%r = matmul %0, %1", "f32[4]"},
    {"f32[2, 8, 16]; f32[16]", "%r = matmul %0, %1", "f32[2, 8]"},
    {"f32[16]; f32[16]", "%r = matmul %0, %1", "f32[]"},
    {"f32[s0, 16]; f32[16, 4]", "%r = aten.mm.default %0, %1", "f32[s0, 4]"},
    {"f32[2, 8, 16]; f32[4, 16]; f32[4]", "%r = linear %0, %1, %2", "f32[2, 8, 4]"},
    {"f32[4]; f32[8, 16]; f32[16, 4]", "%r = addmm %0, %1, %2", "f32[8, 4]"},
    {"f32[1, 4]; f32[8, 16]; f32[16, 4]", "%r = addmm %0, %1, %2", "f32[8, 4]"},
    {"f32[2, 3]; f32[3, 5]", "%r = einsum [%0, %1] { equation = \"ij,jk->ki\" }", "f32[5, 2]"},
    {"f32[2, 3]; f32[3, 5]", "%r = einsum [%0, %1] { equation = \"ij,jk\" }", "f32[2, 5]"},
    {"f32[7, 2, 3]; f32[3, 5]", "%r = einsum [%0, %1] { equation = \"...ij,jk->...ik\" }",
     "f32[7, 2, 5]"},
    {"f32[2, 3, 4]; f32[4, 3, 5]",
     "%r = tensordot %0, %1 { dims_self = [1, 2], dims_other = [1, 0] }", "f32[2, 5]"},
    {"f32[8, 4]; f32[8, 16]; f32[4, 16]", "%r, %s, %t = aten.linear_backward %1, %0, %2",
     "f32[8, 16]; f32[4, 16]; f32[4]"},
    {"f32[2, 3, 8, 8]; f32[6, 3, 3, 3]; f32[6]", "%r = conv2d %0, %1, %2 { padding = 1 }",
     "f32[2, 6, 8, 8]"},
    {"f32[2, 4, 8]; f32[6, 2, 3]", "%r = conv1d %0, %1 { groups = 2, stride = 2 }", "f32[2, 6, 3]"},
    {"f32[2, 6, 3, 3]; f32[2, 4, 5, 5]; f32[6, 4, 3, 3]",
     "%s, %t = aten.convolution_backward.default %0, %1, %2 { output_mask = [false, true, true] }",
     "f32[6, 4, 3, 3]; f32[6]"},
    {"f32[2, 3, 8, 8]", "%r = avg_pool2d %0 { kernel_size = [2, 2] }", "f32[2, 3, 4, 4]"},
    {"f32[6, 4]; f32[3, 4, 5]", "%r = expert_matmul %0, %1", "f32[3, 6, 5]"},
    {"f32[2, 4, 6, 8]; f32[2, 5, 8]", "%r = scores %0, %1", "f32[2, 4, 6, 5]"},
};

constexpr ShapeCase kReduction[] = {
    {"f32[8, 16]", "%r = sum %0", "f32[]"},
    {"f32[8, 16]", "%r = sum %0 { dim = [1] }", "f32[8]"},
    {"f32[8, 16]", "%r = sum %0 { dim = -1, keepdim = true }", "f32[8, 1]"},
    {"f32[2, 8, 16]", "%r = mean %0 { dim = [0, -1] }", "f32[8]"},
    {"f32[2, 8, 16]", "%r = mean %0 { dim = [0, -1], keepdim = true }", "f32[1, 8, 1]"},
    {"bool[8, 16]", "%r = sum %0 { dim = 0 }", "i64[16]"},
    {"f32[8, 16]", "%r = aten.sum.dim_IntList %0 { dim = [] }", "f32[]"},
    {"f32[8, 16]", "%r = argmax %0 { dim = [1] }", "i64[8]"},
    {"f32[8, 16]", "%r, %s = max %0 { dim = 1 }", "f32[8]; i64[8]"},
    {"f32[8, 16]; f32[16]", "%r = max %0, %1", "f32[8, 16]"},
    {"f32[8, 16]", "%r = max %0", "f32[]"},
    {"f32[8, 16]", "%r, %s = aten.var_mean.correction %0 { dim = [0] }", "f32[16]; f32[16]"},
    {"f32[8, 16]", "%r = cumsum %0 { dim = 1 }", "f32[8, 16]"},
    {"f32[8, 16]", "%r = diff %0", "f32[8, 15]"},
    {"f32[8, 16]", "%r = norm %0", "f32[]"},
    {"f32[8, 16]", "%r = all %0", "bool[]"},
    {"f32[8]", "%r = histc %0 { bins = 10 }", "f32[10]"},
};

constexpr ShapeCase kLayout[] = {
    {"f32[8, 16]", "%r = reshape %0 { shape = [4, 2, -1] }", "f32[4, 2, 16]"},
    {"f32[2, s0, 16]", "%r = view %0 { size = [2, s0, 4, 4] }", "f32[2, s0, 4, 4]"},
    {"f32[s0, 16]", "%r = view %0 { size = [-1, 4, 4] }", "f32[s0, 4, 4]"},
    {"f32[6, 4]", "%r = reshape %0 { shape = [4, 6] }", "f32[4, 6]"},
    {"f32[6, 4]; f32[2, 12]", "%r = view_as %0, %1", "f32[2, 12]"},
    {"f32[2, 3, 4]", "%r = flatten %0", "f32[24]"},
    {"f32[2, 3, 4]", "%r = flatten %0 { start_dim = 1 }", "f32[2, 12]"},
    {"f32[2, 12]", "%r = unflatten %0 { dim = 1, sizes = [3, -1] }", "f32[2, 3, 4]"},
    {"f32[2, 1, 4, 1]", "%r = squeeze %0", "f32[2, 4]"},
    {"f32[2, 1, 4, 1]", "%r = squeeze %0 { dim = 1 }", "f32[2, 4, 1]"},
    {"f32[2, 4]", "%r = unsqueeze %0 { dim = -1 }", "f32[2, 4, 1]"},
    {"f32[2, 3, 4]", "%r = permute_dims %0 { dims = [2, 0, 1] }", "f32[4, 2, 3]"},
    {"f32[2, 3, 4]", "%r = transpose %0 { dim0 = 0, dim1 = -1 }", "f32[4, 3, 2]"},
    {"f32[2, 3]", "%r = aten.t.default %0", "f32[3, 2]"},
    {"f32[2, 3, 4]", "%r = mT %0", "f32[2, 4, 3]"},
    {"f32[2, 3, 4]", "%r = movedim %0 { source = 0, destination = 2 }", "f32[3, 4, 2]"},
    {"f32[1, 4]", "%r = expand %0 { size = [3, 5, -1] }", "f32[3, 5, 4]"},
    {"f32[1, 4]; f32[7, 4]", "%r = expand_as %0, %1", "f32[7, 4]"},
    {"f32[2, 3]", "%r = repeat %0 { repeats = [4, 1, 2] }", "f32[4, 2, 6]"},
    {"f32[2, 3]", "%r = repeat_interleave %0 { repeats = 2, dim = 1 }", "f32[2, 6]"},
    {"f32[2, 3]; f32[4, 3]", "%r = cat [%0, %1]", "f32[6, 3]"},
    {"f32[2, 3]; f32[2, 5]", "%r = cat [%0, %1] { dim = -1 }", "f32[2, 8]"},
    {"f32[2, 3]; f32[2, 3]", "%r = stack [%0, %1] { dim = 1 }", "f32[2, 2, 3]"},
    {"f32[2, 8]", "%r, %s = split %0 { sizes = [2, 6], dim = 1 }", "f32[2, 2]; f32[2, 6]"},
    {"f32[8, 2]", "%r, %s, %t = aten.split.Tensor %0 { split_size = 3 }",
     "f32[3, 2]; f32[3, 2]; f32[2, 2]"},
    {"f32[8, 2]", "%r, %s, %t = chunk %0 { chunks = 3 }", "f32[3, 2]; f32[3, 2]; f32[2, 2]"},
    {"f32[2, 8]", "%r, %s = unbind %0", "f32[8]; f32[8]"},
    {"f32[8, 2]", "%r = slice %0 { start = 2, end = -1 }", "f32[5, 2]"},
    {"f32[8, 2]", "%r = aten.slice.Tensor %0 { end = 9007199254740992, step = 3 }", "f32[3, 2]"},
    {"f32[8, 2]", "%r = narrow %0 { dim = 0, start = 1, length = 4 }", "f32[4, 2]"},
    {"f32[8, 2]", "%r = select %0 { dim = 0, index = 3 }", "f32[2]"},
    {"f32[3, 2]",
     "%r = slice_backward %0 { input_sizes = [8, 2], dim = 0, start = 0, end = 3, step = 1 }",
     "f32[8, 2]"},
    {"f32[2]", "%r = select_backward %0 { input_sizes = [8, 2], dim = 0, index = 3 }", "f32[8, 2]"},
    {"f32[8, 2]; f32[3, 2]", "%r = slice_scatter %0, %1 { dim = 0, end = 3 }", "f32[8, 2]"},
    {"f32[8, 2]", "%r = aten.constant_pad_nd.default %0 { pad = [1, 2] }", "f32[8, 5]"},
    {"f32[8, 2]", "%r = aten.flip.default %0 { dims = [0] }", "f32[8, 2]"},
    {"f32[8, 8]", "%r = tril %0", "f32[8, 8]"},
    {"f32[2, 8, 3, 5]", "%r = pixel_shuffle %0 { upscale_factor = 2 }", "f32[2, 2, 6, 10]"},
    {"f32[8, 2]", "%r = view_as_real %0", "f32[8, 2, 2]"},
};

constexpr ShapeCase kIndexing[] = {
    {"f32[10, 4]; i64[2, 3]", "%r = embedding %0, %1", "f32[2, 3, 4]"},
    {"i64[2, 3]; f32[10, 4]", "%r = torch.nn.functional.embedding %0, %1", "f32[2, 3, 4]"},
    {"f32[2, 3, 4]; i64[2, 3]", "%r = embedding_dense_backward %0, %1 { num_weights = 10 }",
     "f32[10, 4]"},
    {"f32[8, 4]; i64[3]", "%r = index_select %0, %1 { dim = 1 }", "f32[8, 3]"},
    {"f32[8, 4]; i64[8, 2]", "%r = gather %0, %1 { dim = 1 }", "f32[8, 2]"},
    {"f32[8, 4]; i64[6, 2]", "%r = gather %0, %1 { dim = 1 }", "f32[6, 2]"},
    {"f32[8, 4]; i64[5]", "%r = index %0, %1", "f32[5, 4]"},
    {"f32[8, 4, 3]; i64[5]", "%r = index %0, [null, %1]", "f32[8, 5, 3]"},
    {"f32[8, 4, 3]; i64[5, 1]; i64[6]", "%r = index %0, [%1, null, %2]", "f32[5, 6, 4]"},
    {"f32[8, 4]; bool[8, 4]", "%r = index %0, [%1]", "?"},
    {"f32[8, 4]; i64[5]; f32[5, 4]", "%r = aten.index_put.default %0, [%1], %2", "f32[8, 4]"},
    {"f32[8, 4]; i64[8, 2]; f32[8, 2]", "%r = scatter_add %0, %1, %2 { dim = 1 }", "f32[8, 4]"},
    {"f32[8, 4]; i64[6, 2]; f32[8, 2]", "%r = aten.scatter.src %0, %1, %2 { dim = 1 }",
     "f32[8, 4]"},
    {"f32[8, 4]; i64[6, 2]", "%r = aten.scatter.value %0, %1 { dim = 1, value = 0 }", "f32[8, 4]"},
    {"f32[8, 4]; i64[2]; f32[2, 4]", "%r = aten.index_add.default %0, %1, %2 { dim = 0 }",
     "f32[8, 4]"},
    {"i64[2, 3]", "%r = one_hot %0 { num_classes = 5 }", "i64[2, 3, 5]"},
    {"f32[8, 4]", "%r, %s = topk %0 { k = 2 }", "f32[8, 2]; i64[8, 2]"},
    {"f32[8, 4]", "%r, %s = sort %0", "f32[8, 4]; i64[8, 4]"},
    {"f32[8, 4]", "%r = argsort %0", "i64[8, 4]"},
    {"f32[8, 4]; bool[8, 4]", "%r = masked_select %0, %1", "?"},
    {"f32[8, 4]; i64[8]", "%r = gather_masked %0, %1", "f32[8]"},
};

constexpr ShapeCase kNormalisation[] = {
    {"f32[2, 8]", "%r = softmax %0 { dim = [1] }", "f32[2, 8]"},
    {"f32[2, 8]; f32[8]; f32[8]", "%r = layer_norm %0, %1, %2 { normalized_shape = [8] }",
     "f32[2, 8]"},
    {"f32[2, 3, 8]; f32[3, 8]; f32[3, 8]",
     "%r, %s, %t = native_layer_norm %0, %1, %2 { normalized_shape = [3, 8] }",
     "f32[2, 3, 8]; f32[2, 1, 1]; f32[2, 1, 1]"},
    {"f32[2, 8]; f32[2, 8]; f32[2, 1]; f32[2, 1]; f32[8]; f32[8]",
     "%r, %s, %t = aten.native_layer_norm_backward.default %0, %1, %2, %3, %4, %5 { "
     "normalized_shape = [8] }",
     "f32[2, 8]; f32[8]; f32[8]"},
    {"f32[2, 8]; f32[8]", "%r = rms_norm %0, %1", "f32[2, 8]"},
    {"f32[2, 6, 5]; f32[6]", "%r = group_norm %0, %1 { num_groups = 3 }", "f32[2, 6, 5]"},
    {"f32[8, 10]; i64[8]", "%r = cross_entropy %0, %1", "f32[8]"},
    {"f32[8, 10]; i64[8]", "%r = torch.nn.functional.cross_entropy %0, %1", "f32[]"},
    {"f32[8, 10]; i64[8]", "%r = torch.nn.functional.cross_entropy %0, %1 { reduction = \"none\" }",
     "f32[8]"},
    {"f32[8, 10]; i64[8]", "%r, %s = aten.nll_loss_forward.default %0, %1 { ignore_index = -100 }",
     "f32[]; f32[]"},
    {"f32[]; f32[8, 10]; i64[8]; f32[]",
     "%r = aten.nll_loss_backward.default %0, %1, %2, null, %3 { reduction = 1 }", "f32[8, 10]"},
    {"f32[8, 2]; f32[8, 2]", "%r = aten.mse_loss.default %0, %1 { reduction = 0 }", "f32[8, 2]"},
    {"f32[2, 4, 8, 16]; f32[2, 4, 8, 16]; f32[2, 4, 8, 16]",
     "%r = attention %0, %1, %2 { is_causal = true }", "f32[2, 4, 8, 16]"},
    {"f32[2, 4, 8, 16]; f32[2, 2, 6, 16]; f32[2, 2, 6, 16]",
     "%r = attention %0, %1, %2 { enable_gqa = true }", "f32[2, 4, 8, 16]"},
    {"f32[2, 4, 8, 16]; f32[2, 4, 6, 16]; f32[2, 4, 6, 12]; f32[8, 6]",
     "%r = scaled_dot_product_attention %0, %1, %2, %3", "f32[2, 4, 8, 12]"},
    {"f32[2, 4, 8, 16]; f32[2, 4, 6, 16]; f32[2, 4, 6, 16]; f32[2, 4, 8]",
     "%r, %s, %t = aten._scaled_dot_product_flash_attention_backward %0, %0, %1, %2, %0, %3",
     "f32[2, 4, 8, 16]; f32[2, 4, 6, 16]; f32[2, 4, 6, 16]"},
};

constexpr ShapeCase kCreation[] = {
    {"", "%r = zeros { size = [4, 8] }", "f32[4, 8]"},
    {"", "%r = aten.full.default { size = [4], dtype = i64, fill_value = 3 }", "i64[4]"},
    {"", "%r = arange { end = 10, dtype = i64 }", "i64[10]"},
    {"bf16[4]", "%r = zeros_like %0", "bf16[4]"},
    {"bf16[4]", "%r = aten.new_zeros.default %0 { size = [2, 2] }", "bf16[2, 2]"},
    {"f32[4]", "%r, %s = aten.native_dropout.default %0 { p = 0.5, train = true }",
     "f32[4]; bool[4]"},
    {"f32[4]", "%r = aten.fill.Scalar %0 { value = 0 }", "f32[4]"},
};

constexpr ShapeCase kMismatches[] = {
    {"f32[8, 16]; f32[8, 4]", "%r = matmul %0, %1",
     "dimension 1 of operand 0 and dimension 0 of operand 1: 16, 8"},
    {"f32[8, 1]; f32[8, 4]", "%r = matmul %0, %1",
     "dimension 1 of operand 0 and dimension 0 of operand 1: 1, 8"},
    {"f32[8, 16]; f32[15]", "%r = add %0, %1",
     "dimension 1 of operand 0 and dimension 0 of operand 1: 16, 15"},
    {"f32[8, 16]", "%r: f32[8] = sum %0 { dim = 0 }",
     "the declared and the actual shape: [8], [16]"},
    {"f32[8, 16]", "%r = reshape %0 { shape = [3, -1] }",
     "the number of elements of the operand and of the result: 128, 3"},
    {"f32[8, 16]", "%r, %s = split %0 { sizes = [4, 5] }",
     "dimension 0 of operand 0 and the sum of the sizes: 8, 9"},
    {"f32[8]; f32[8]; f32[8]", "%r = gelu %0, %1, %2", "operand a; 3 are given"},
    {"f32[8]", "%r = matmul %0", "operands a, b; operand b is missing"},
};

} // namespace

TEST_CASE("shapes follow from the op table", "[ops]") {
  check_shapes(kPointwise, false);
  check_shapes(kContraction, false);
  check_shapes(kReduction, false);
  check_shapes(kLayout, false);
  check_shapes(kIndexing, false);
  check_shapes(kNormalisation, false);
  check_shapes(kCreation, false);
}

TEST_CASE("shapes that do not fit are reported", "[ops]") { check_shapes(kMismatches, true); }

TEST_CASE("every alias means a row, a transition or a boundary op", "[ops]") {
  for (const rules::Alias &alias : rules::aliases()) {
    INFO(alias.spelling);
    llvm::StringRef spelling(alias.spelling.data(), alias.spelling.size());
    rules::ResolvedOp op = rules::resolve_spelling(spelling, "spmd");
    CHECK(op.form != rules::OpForm::Unknown);
    if (op.row)
      CHECK(op.row->name == alias.op);
  }
}

TEST_CASE("names of rows are unique and resolve to themselves", "[ops]") {
  size_t count = 0;
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family) {
      INFO(row.name);
      llvm::StringRef name(row.name.data(), row.name.size());
      CHECK(rules::find_op(name) == &row);
      CHECK(rules::resolve_spelling(name, "spmd").row == &row);
      ++count;
    }
  CHECK(count >= 380);
}

TEST_CASE("a table with a name that stands twice, or a spelling of nothing, is refused", "[ops]") {
  using rules::Alias;
  llvm::ArrayRef<llvm::ArrayRef<rules::OpDef>> families = rules::op_families();
  CHECK(rules::table_problem(families, rules::aliases()).empty());
  llvm::SmallVector<llvm::ArrayRef<rules::OpDef>, 16> twice(families.begin(), families.end());
  twice.push_back(families.front().take_front());
  CHECK(rules::table_problem(twice, {}) ==
        "two rows are called `" + std::string(families.front().front().name) + "`");
  const Alias same[] = {{.spelling = "plus", .op = "add"}, {.spelling = "plus", .op = "sub"}};
  CHECK(rules::table_problem(families, same) == "the spelling `plus` stands twice");
  const Alias nothing[] = {{.spelling = "plus", .op = "ad"}};
  CHECK(rules::table_problem(families, nothing) == "`plus` is a spelling of `ad`, which is no op");
  const rules::OpDef wrong[] = {
      {.name = "plus", .equation = "f(a[...]) -> [...]", .values = {{{"b", rules::Values::Unit}}}}};
  CHECK(rules::table_problem({wrong}, {}) ==
        "a column of `plus` names `b`, which its equation does not have");
  const Alias order[] = {{.spelling = "plus", .op = "add", .order = "- q"}};
  CHECK(rules::table_problem(families, order) ==
        "the order of `plus` has the word `q`, which is no operand of `add`");
}

TEST_CASE("spellings that follow by rule", "[ops]") {
  struct {
    const char *spelling, *row;
    bool in_place, each, swapped;
  } const cases[] = {
      {"aten.add_.Tensor", "add", true, false, false},
      {"aten._foreach_mul_.Scalar", "mul", true, true, false},
      {"aten.rsub.Scalar", "sub", false, false, true},
      {"__radd__", "add", false, false, true},
      {"operator.isub", "sub", true, false, false},
      {"operator.and_", "bitwise_and", false, false, false},
      {"aten.__rshift__.Scalar", "bitwise_right_shift", false, false, false},
      {"torch.special.expm1", "expm1", false, false, false},
      {"torch.linalg.cross", "cross", false, false, false},
      {"aten.expand_copy.default", "expand", false, false, false},
      {"aten.max.dim", "max.dim", false, false, false},
      {"aten.view.dtype", "bitcast", false, false, false},
      {"torch.Tensor.copy_", "copy", true, false, true},
  };
  for (const auto &test : cases) {
    INFO(test.spelling);
    rules::ResolvedOp op = rules::resolve_spelling(test.spelling, "spmd");
    REQUIRE(op.row);
    CHECK(op.row->name == test.row);
    CHECK(op.in_place == test.in_place);
    CHECK(op.each == test.each);
    CHECK((op.order == llvm::SmallVector<uint8_t, 6>{1, 0}) == test.swapped);
  }
  CHECK(rules::resolve_spelling("mylib.relu", "spmd").form == rules::OpForm::Unknown);
  CHECK(rules::resolve_spelling("matmull", "spmd").nearest == "matmul");
  CHECK(rules::resolve_spelling("c10d.all_reduce_", "spmd").transition ==
        rules::TransitionOp::AllReduce);
  CHECK(rules::resolve_spelling("_c10d_functional.all_to_all_single.default", "spmd").transition ==
        rules::TransitionOp::AllToAll);
}
