// Random programs that check: statement by statement, what the checker refuses is dropped again.
// Operands and their types are chosen so that little is refused.
#pragma once

#include "tests/soundness/draft.h"
#include "tests/soundness/world.h"

#include "rules/ops/op.h"

#include <map>

namespace spmd::soundness {

struct Size {
  unsigned inputs = 3, statements = 10;
};

// What a value is: its extents, and a kind per typed axis.
struct Want {
  struct Axis {
    char kind = 'R'; // R I V P S, D for Reduced
    unsigned dim = 0;
  };
  ir::DType dtype = ir::DType::F32;
  Dims local, global;
  llvm::SmallVector<llvm::SmallVector<unsigned, 2>, 4> cuts; // per dimension: axes, outermost first
  llvm::SmallVector<Axis, 4> axes;                           // per typed axis
};
bool same(const Want &a, const Want &b);

std::string list_of(llvm::ArrayRef<int64_t> numbers); // `[2, 3]`

class Grower;

class Generator {
public:
  Generator(uint64_t seed, Size size);
  // Ends with a loss, its backward, and gradients, where the values allow it.
  Draft run();

private:
  // A live value as it is now.
  struct Seen {
    unsigned id = 0;
    Want want;
    bool gradient_free = false;
  };

  void begin();
  void declare_some();
  bool keep(Statement statement);
  unsigned declare(const Want &want, std::string_view role);
  std::string print(const Want &want) const;
  Want random_want(unsigned rank);
  Seen see(unsigned id) const;      // only of what is known
  bool is_known(unsigned id) const; // its type and its shape
  std::optional<unsigned> pick(ir::DTypeClass form = ir::DTypeClass::Float);
  // A live value that is as wanted, or a new one.
  unsigned provide(const Want &want);

  bool extend();
  bool table_row();
  bool apply(const rules::OpDef &row, const Seen &first);
  // Dimensions of a row by what they are of the first operand, or their own extent.
  struct Bound {
    int dim = -1;
    int64_t extent = 1;
  };
  using Bounds = std::map<unsigned, Bound>;
  // An operand beside the first; nothing: none can be had.
  std::optional<Operand> operand(const rules::OpDef &row, const rules::Ref &ref, const Seen &first,
                                 llvm::ArrayRef<unsigned> dims, Bounds &bounds);
  void row_attributes(const rules::OpDef &row, size_t rank, Statement &statement);
  bool transition();
  // To another type of the same tensor, by a plan; or two axes change places.
  bool redistribution(const Seen &seen);
  bool swap(const Seen &seen);
  // Ops whose attributes say what becomes of dimensions (generator_views.cc).
  bool view();
  bool reshape(unsigned kind, const Dims &dims, size_t d, Statement &statement);
  bool cut(unsigned kind, int64_t extent, size_t d, Statement &statement);
  bool einsum(const Seen &seen, Statement &statement);
  bool call();
  bool control();
  // Control flow and regions, with bodies that are grown (generator_control.cc).
  bool scan();
  bool layers();
  bool choice();
  std::optional<unsigned> member(unsigned axis, ir::DType dtype);
  bool loop();
  bool mapped();
  std::string function(llvm::ArrayRef<std::pair<std::string, Want>> params, const Grower &body,
                       llvm::ArrayRef<std::string> results);
  std::string claim(Want want, unsigned mask);
  bool keep_with(Statement statement, size_t functions);
  bool edge();
  void region();
  bool loss();
  void after_backward();
  void step(unsigned param, unsigned gradient);
  Want beside(const Seen &first, llvm::ArrayRef<int> dims, llvm::ArrayRef<int64_t> fresh,
              bool addend);
  std::string axis_name(unsigned axis) const { return axes_[axis]; }
  std::string dim_words(const Seen &seen);

  Random random_;
  Size size_;
  Draft draft_;
  std::unique_ptr<Checked> now_;
  llvm::SmallVector<std::string, 4> axes_; // typed ones, of the current mesh
  llvm::SmallVector<int64_t, 4> sizes_;
  llvm::SmallVector<std::string, 2> flattened_;
  llvm::SmallVector<unsigned, 32> live_;
  llvm::SmallVector<int64_t, 4> extents_; // that dimensions are likely to have
  std::string region_;
  bool local_ = false, uneven_ = false;
};

} // namespace spmd::soundness
