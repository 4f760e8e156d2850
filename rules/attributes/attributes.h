// The attributes that ops know: their names, what their values may be, and where that depends on
// the operands. Derived from the columns of a row: who names a map of dimensions reads the
// attributes of that map. Judged with the application, so equal applications are judged once.
#pragma once

#include "rules/application.h"
#include "rules/bind.h"

namespace spmd::rules {

// What a value may be. Dimensions and positions count from the end where they are negative.
enum class AttributeForm : uint8_t {
  Any,
  Flag,     // true, false, 1, 0
  Word,     // text
  Number,   // whole or not
  Whole,    // a whole number
  Count,    // not below 0; one or a list
  Positive, // above 0; one or a list
  Dim,      // a dimension of the operand
  Dims,     // one or a list of them, each once
  NewDim,   // a dimension of the operand with one more
  Order,    // all dimensions, each once
  Extents,  // a list of extents; -1 is inferred
  Trailing, // the extents of the last dimensions of the operand
  Place,    // an index into dimension `dim`
  Start,    // where a slice of dimension `dim` begins,
  End,      // ends,
  Length,   // and how long it is
  Part,     // a number of elements of dimension `dim`, at least one
  DType,
  Reduction, // none, mean, sum
  Rank,      // a rank of the group of a collective
  Pairs,     // [from, to] of such ranks, each once on either side
  Axes,      // an axis, or several
  Kinds,     // a kind, or one per axis
  Type,      // a type, or a part of one
  Types,     // a list of them
  Factor,    // a product or quotient of sizes
  NoVjp,     // none: no derivative
  Function,
  Mesh, // the name of a mesh of the program
};

// One attribute: the names that frameworks have for it, ours first, and its form.
struct AttributeSpec {
  std::string_view names; // separated by `|`
  AttributeForm form = AttributeForm::Any;
  std::string_view first_name() const { return names.substr(0, names.find('|')); }
};

// The attributes of a row under a spelling (null: its own name), those that any op takes left out.
// `open`: the map of its dimensions is not known, so that it may have others.
// `shared`: any attribute of an op may stand there too, such as `partial` or `eps`.
struct AttributeList {
  llvm::SmallVector<AttributeSpec, 8> specs;
  bool open = false;
  bool shared = true;
};
AttributeList attributes_of(const OpDef &row, const Alias *alias);
// Those of a transition of that name.
AttributeList attributes_of_transition(TransitionOp op);
// Those of a boundary op, or of a call, of that name.
AttributeList attributes_of_boundary(Boundary op);
// The names of the attribute that positions dimensions, separated by `|`.
std::string_view dim_names();

// What the numbers of an attribute are where a program is given other extents: as one number, and
// as those of a list. An attribute that no row names is Unknown on both sides: an extent that is
// equal to it must stay.
struct AttributeExtents {
  enum class Number : uint8_t {
    Unknown,
    None,   // no extent: a dimension, a flag, a factor
    Extent, // of a dimension of a result or an operand
    Bound,  // a position along the dimension that a slice cuts, in proportion to its extent
    Piece,  // the extent of all pieces of a dimension but the last one
    Place,  // one position, which must be there
    Rank,   // of the whole run
    Root,   // a rank of the group of a collective
  };
  enum class List : uint8_t {
    Unknown,
    None,
    Kept,    // extents that stay as they are
    Extents, // of a tensor, or of its last dimensions
    Pieces,  // of a dimension, one for each result or each rank
    PiecesOrExtents,
    Permutation, // pairs of ranks
    Strides,     // of elements in storage; of a window they are None
  };
  std::string_view names; // separated by `|`
  Number number = Number::Unknown;
  List list = List::Unknown;
};
AttributeExtents extents_of_attribute(std::string_view name);

// What a value of that form is, as messages and manuals say it.
std::string_view describe(AttributeForm form);

// Adds what is wrong with the attributes of the application, and with the element types of operands
// that the row takes for indices, and says whether anything is. `row` is the one that was chosen.
bool check_attributes(const Application &app, const OpDef &row, const Binding &binding,
                      Outcome &out);
// `ranks`: the size of the group; none if it is not known.
bool check_transition_attributes(const Application &app, TransitionOp op,
                                 std::optional<int64_t> ranks, Outcome &out);
// Of a boundary op, or of a call.
bool check_boundary_attributes(const Application &app, Outcome &out);

} // namespace spmd::rules
