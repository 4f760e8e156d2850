// What a row or a spelling computes that others of the same equation do not. Kernels read column
// `variant`, and compare no names.
#pragma once

#include <cstdint>

namespace spmd::rules {

enum class Variant : uint8_t {
  Plain,

  // Attention.
  Causal,            // a query looks at no later key
  PackedSequences,   // operands say where each one begins
  MaskOfDropout,     // is an operand
  StatedLayout,      // by an attribute
  Flash,             // heads stand behind the sequence, the last query at the last key
  Efficient,         // heads stand behind the sequence
  EfficientBackward, // as Efficient, and as BiasFifth
  BiasFifth,         // the backward takes the bias in that place
  BiasSeventh,

  // Slices.
  StridedStarts,   // attributes have one entry per dimension
  StartOperands,   // one per dimension
  OneStartOperand, // of one dimension
  Unrecorded,      // nothing says what is taken
  OneEntry,        // of a dimension that the result lacks
  Length,          // a start and a length
  Diagonal,
  Strided,

  // Joins, splits, flips.
  Rows, // along dimension 0
  Columns,
  Depth,
  ColumnVectors, // vectors are columns
  Combinations,  // of all members
  Entries,       // results lack the dimension
  Padded,

  // Other moves.
  Adjoint,    // the conjugate as well
  Grid,       // each member spans its own dimension
  ToMiddle,   // what stands first
  FromMiddle, // back again
  OfVector,   // a vector makes a matrix
  LastTwo,    // dimensions, where none are named
  Flat,       // of the operand as a vector

  // Windows.
  Transposed,
  TimeFirst,     // before batch and channels
  Adaptive,      // as many windows as results
  Smallest,      // element
  RecomputesMaxima,     // maxima that gradients are scattered to
  RegathersAtMaxima,  // what stands beside maxima
  LinearWeights, // of interpolation
  CubicWeights,
  NearestExact, // element, by the middles of both
  Antialiased,
  AnyLayout, // attributes say which dimension is what

  // Linear algebra.
  FromCholeskyFactor,   // the operand is the factor of Cholesky
  Reflectors, // are not multiplied out
  Bilinear,   // nothing is conjugated
  BlockSizes, // given instead of where blocks end

  // Reductions and scans.
  Largest, // element
  All,     // are true
  Odd,     // number of true ones
  SkipsNan,
  Mean,
  Root,
  Gradient,
  Frobenius,
  Nuclear,
  OfMatrix,  // norm
  OfTwoDims, // the norm of a matrix where two dimensions are meant

  // Functions of numbers.
  Truth,
  Whole,
  CubeRoot,
  Inverse,
  UpperHalf,
  CountsBits,
  LeadingZeros,
  LogicalShift,
  ReducedPrecision,
  Quantised,    // operand
  Simulated,    // quantisation: the result is rounded, and real again
  TotalOrder,   // of all bit patterns
  GatesByFirst, // half

  // Normalisation and losses.
  LayerNorm,
  RmsNorm,
  GroupNorm,
  BatchNorm,
  InstanceNorm,
  Logarithm, // of what others give
  Negated,
  SoftTargets, // of scores; targets are probabilities
  FromLogits,    // whose logarithm of softmax is taken
  ComputesLogits, // itself
  OfMean,      // the gradient
  OfSum,

  // Tensors made of nothing.
  Empty,
  Ones,
  Range,
  Iota,
  Linear,
  Logarithmic,
  Eye,
  LowerTriangle, // positions in it
  UpperTriangle,
  Data, // stands in an attribute
  Counter,

  // Random numbers.
  Normal,
  Integer,
  Exponential,
  Geometric,
  Cauchy,
  LogNormal,
  Coin,
  Uniform,
  UniformBetween, // bounds may be operands
  Bits,
  Permutation,
  Threefry,
  Gamma,
  Dirichlet,
  KeepProbability,    // the number is what dropout keeps
  WholeChannels, // are dropped

  // Indexing.
  Adds, // to what stands there
  Subtracts,
  Multiplies,
  FirstDim,   // where no dimension is named
  Lines,      // one index for all of a line
  Filled,     // results that are left over
  ZeroesRest, // results that are left over are zero
  Neighbours, // equal ones count once
  LocalRowsOnly,    // of the table, others give 0
  Descending, // where nothing is stated
  MeanOfBag,  // where nothing is stated

  DecoupledDecay, // of weights, by an optimizer
};

} // namespace spmd::rules
