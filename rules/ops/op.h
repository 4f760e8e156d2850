// One row of the op table, and what its columns may name. A row is data: local typing, shapes,
// backward, execution and documentation are read from it by generic code.
#pragma once

#include "rules/equation.h"
#include "rules/ops/variant.h"

#include "ir/shape.h"

#include <array>
#include <string_view>

namespace spmd::rules {

struct Application;

// Where the dimension that an attribute places stands when the attribute is absent.
enum class DefaultDim : uint8_t { Last, All, First, Second, LastTwo };

// How the element type of the results follows from the operands.
enum class DTypeRule : uint8_t {
  Promote, // the widest of the operands that enter the sum
  Boolean,
  Index,     // i64
  Attribute, // attribute `dtype`, else as Promote
  First,     // that of the first operand
  Float,     // as Promote, but integers and Booleans give f32
  // Attribute `dtype`, else as Promote, but integers and Booleans give i64.
  Accumulate,
  Complex, // as Promote, but floats give complex numbers
  Real,    // as Promote, but complex numbers give floats
};

// Assigns extents to factors that no operand has, from shapes and attributes.
// Extents stay unknown where the function leaves them out; the declared shape is then taken.
class ExtentSink;
using ExtentsRule = void (*)(const Application &, ExtentSink &);

// The equation of one application where the row's dimensions depend on attributes (`.factors` of
// the op table): fills dims of operand refs and results, and extents of new factors. False: the
// attributes do not say.
class FactorSink;
using FactorsRule = bool (*)(const Application &, FactorSink &);

// The row that one spelling means for these operands and attributes (`max` of two tensors is
// `maximum`). Empty: the row itself.
using ChooseRule = std::string_view (*)(const Application &);

// What becomes of the losses of single elements. torch's numbers are those of the first three.
enum class LossReduction : uint8_t { None, Mean, Sum, BatchMean };
inline constexpr std::string_view kReductionWords[] = {"none", "mean", "sum", "batchmean"};

// What numbers an operand may hold for the result to make sense, where the equation does not tell.
// Of two uses of one value the later form counts.
enum class Values : uint8_t {
  Free,     // any numbers of order 1, of both signs
  Nonzero,  // not near 0
  Distinct, // as few equal ones as may be
  Positive, // well above 0
  AboveOne,
  Unit,     // well inside of (0, 1)
  Sorted,   // ascending along the last dimension
  Definite, // symmetric in the last two dimensions, and well conditioned
  Truth,    // 0 or 1, both of them
  Index,    // whole numbers from 0 on, below a limit
  Starts,   // ascending from 0, at most the limit: where parts of that many elements begin
  Ends,     // ascending up to the limit: where such parts end
};
struct ValuesOfOperand {
  std::string_view operand = {};
  Values form = Values::Free;
  // the factor whose extent is the limit; empty: the first operand's size
  std::string_view limit = {};
};

// What a row computes, for readers to which its equation does not say enough: divisions by counts
// and products by sizes of axes, norms of blocks, look-ups in blocks of a table.
enum class Computes : uint8_t {
  Other,
  Identity,
  Add,
  Sub,
  Mul,
  Div,
  Square,
  Root, // square root; in another spelling, another one
  Abs,
  Exponential,
  Logarithm,
  LogSumExp,
  Maximum, // of two operands
  Minimum,
  Sign,
  Power,
  FloorDiv,
  Remainder,          // of FloorDiv: of the sign of the divisor
  TruncatedRemainder, // of the sign of the dividend
  ReduceSum,
  Norm,
  ReduceMax,
  ReduceMin,
  Embedding,
  Index,
  Gather, // along the dimension that attribute `dim` names
  IndexPut,
  ArgSort, // its last result: the indices that sort
  NonZero,
  EmbeddingGrad, // adds rows to those of a new table that an index names
  Equal,
  NotEqual,
  Less,
  LessEqual,
  Greater,
  GreaterEqual,
  LogicalAnd, // bitwise_and as well, which is the same of masks
  LogicalOr,
  LogicalNot,
  Clamp,
  Item, // read by the program around the trace, to be printed or logged
};

struct OpDef {
  std::string_view name;
  Variant variant = Variant::Plain; // of the row under its own name
  EquationText equation;
  Computes computes = Computes::Other;
  // `d`, or `d e`: the factors that stand where attribute `dim` says, among `...`.
  std::string_view placed = {};
  DefaultDim default_dim = DefaultDim::Last;
  // The factor that spans the trailing dimensions listed in attribute `normalized_shape`.
  std::string_view spans = {};
  DTypeRule dtype = DTypeRule::Promote;
  ExtentsRule extents = nullptr;
  FactorsRule factors = nullptr;
  ChooseRule choose = nullptr;
  // Of the results after the first.
  DTypeRule later_dtype = DTypeRule::Promote;
  // `v value`: where nothing stands for operand v, the number in attribute `value` does (0 if that
  // is absent too).
  std::string_view from_attr = {};
  // The operand that alone gives the extents of `...`: others may be longer or shorter there
  // (gather).
  std::string_view rest_from = {};
  // Attribute `reduction`: the equation shows the mean; `sum` drops the division, `none` keeps the
  // factors.
  bool reduces = false;
  // The operand that the in-place spelling writes.
  std::string_view mut = {};
  // False: no derivative, so the result is gradient-free whatever the operands (detach, argmax).
  bool gradient = true;
  // A plain number 0 in an operand's place removes its term (rules/README.md).
  bool zero_drops_term = false;
  // A constant: either R or I. A zero: P as well.
  enum class Constant : uint8_t { No, Either, Zero } constant = Constant::No;
  // What f(...) makes of a scale (rules/README.md): it takes 1 alone, inverts it, or does not see
  // it.
  enum class FunctionScale : uint8_t { One, Inverse, Any } function_scale = FunctionScale::One;
  // List operands are zipped: the row is applied to the members one by one.
  bool each = false;
  // How a dimension that a result alone has follows where a program is given other extents.
  enum class OwnDims : uint8_t {
    Fixed,        // it stays
    // as that of an operand in the same place; if tensors say where it begins, as Part
    Proportional,
    Attribute,    // as the attributes say
    Part,         // it stays, and that of the operand in the same place is as long at least
  } own_dims = OwnDims::Fixed;
  // Of rows whose equation is one operand alone: results have other elements than it has (sums,
  // means, transforms); else each is one of its elements, or a 0.
  bool new_elements = false;
  // Rounding errors are in proportion to what enters, not to what comes out (gelu, near its zeros).
  bool error_of_operand = false;
  std::array<ValuesOfOperand, 2> values = {};
  // The operand whose elements stand where the condition of the row holds; those of another one
  // stand where it does not.
  std::string_view chooses = {};
  std::string_view note = {};
  // Rows that follow from a row: the gradient of one of its operands (rules/derivative.h).
  const OpDef *derivative_of = nullptr;
  uint8_t derivative_at = 0;
};

// A spelling of a framework. `order` names, position by position, the operand of the row that it
// fills (`b a` swaps two, `-` ignores one, `~` is the random state); empty: the row's own order.
// After its last word `...` takes all tensors from there on as one list.
struct Alias {
  std::string_view spelling;
  std::string_view op;
  std::string_view order = {};
  ChooseRule choose = nullptr;
  bool each = false;                    // list operands are zipped, whatever the row says
  FactorsRule factors = nullptr;        // the map of this spelling, where it is not that of the row
  ir::DType dtype = ir::DType::Unknown; // the element type that the spelling itself states (`long`)
  LossReduction reduction = LossReduction::None; // what `reduction` means if it is absent
  Variant variant = Variant::Plain;
  uint8_t spatial_dims = 0; // that the spelling states (`max_pool2d`)
};

} // namespace spmd::rules
