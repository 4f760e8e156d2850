// Holds the attributes of one application against what its row knows. Frameworks pass attributes of
// which types do not depend; they are taken as they are, unless a name is a misspelling of one that
// is known.
#include "rules/attributes/attributes.h"
#include "rules/ops/registry.h"

#include "rules/derivative.h"
#include "rules/factors/factors.h"
#include "rules/factors/shape_rule.h"
#include "rules/shapes/attrs.h"
#include "rules/violations/operands.h"
#include "rules/violations/transitions.h"

#include "ir/claims.h"
#include "ir/support/misspelling.h"
#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::rules {

namespace {

using Form = AttributeForm;
using ir::AttrForm;
using ir::AttrValue;
using ir::DTypeClass;

// What any instruction may have.
constexpr AttributeSpec kAnywhere[] = {
    {"phase|bwd_of|ignore|implicit"},
    {"vjp", Form::NoVjp},
};

// What any op may have: words of programs, and numbers of which no type depends.
constexpr AttributeSpec kShared[] = {
    {"partial", Form::Axes},
    {"out"},
    {"expert", Form::Flag},
    {"member", Form::Count},
    {"dtype|new_dtype|output_dtype|index_dtype|out_dtype", Form::DType},
    {"input_dtype|op_dtype|preferred_element_type"},
    {"half_to_float|keepdim|keepdims|unbiased|hermitian|transpose|reverse", Form::Flag},
    {"stable|descending|sorted|largest|right|return_inverse|return_counts|log_target", Form::Flag},
    {"log_input|full|zero_infinity|swap|maximize|amsgrad|nesterov|is_first_step", Form::Flag},
    {"training|train|inplace|non_blocking|copy|requires_grad|pin_memory|is_causal", Form::Flag},
    {"decoupled|decoupled_weight_decay|foreach|fused|capturable|differentiable", Form::Flag},
    {"scale_grad_by_freq|sparse|include_last_offset|assume_unique|invert|hard", Form::Flag},
    {"eps|epsilon|alpha|beta|gamma|lambd|lambda|slope|negative_slope|threshold|momentum",
     Form::Number},
    {"p|lr|learning_rate|weight_decay|lr_decay|beta1|beta2|dampening|max_norm", Form::Number},
    {"value|fill_value|min|max|min_val|max_val|lower_bound|upper_bound|base|dx|tol", Form::Number},
    {"reduction", Form::Reduction},
    {"input_scale", Form::Number},
    {"is_result", Form::Flag},
    {"rtol|atol|nan|posinf|neginf|delta|margin|tau|temperature|label_smoothing", Form::Number},
    {"weight|exponent|y|q|rcond|initial|s|dropout_p|scale|low|high|mean|std", Form::Number},
    {"growth_factor|backoff_factor|scale_growth_factor|scale_backoff_factor", Form::Number},
    {"growth_interval", Form::Count},
    {"diagonal", Form::Whole},
    {"correction|ord|norm_type|betas|step|k|n|offset|padding_idx|minlength"},
    {"dim0|dim1|dim2|axis0|axis1|axis2"},
    {"decimals|ddof|spacing_scalar|lower|upper"}, // a flag of a triangle, a bound of rrelu
    {"num_classes|output_mask|group|groups|num_groups|stride|storage_offset|generator|rng"},
    {"memory_format|layout|device|approximate|side|mode|indexing|norm|normalization|reduce"},
    {"interpolation|axis|shifts|unit_offset|max|how|ways|over|all|op|spec|type|tag|peer|sharding"},
    {"kernel_size|output_size|strides|padding|dilation|padding_mode|blank"},
    {"precision|accuracy|exponent_bits|mantissa_bits|rounding_method|weak_type|name|data"},
    {"size|shape|sizes|dims|index|indices|length|lengths|unsafe|quant_min|quant_max|zero_point"},
};

template <class Visit> bool each_name(const AttributeSpec &spec, Visit visit) {
  llvm::StringRef left(spec.names.data(), spec.names.size());
  while (!left.empty()) {
    auto [name, rest] = left.split('|');
    if (visit(name))
      return true;
    left = rest;
  }
  return false;
}
const AttributeSpec *find_spec(llvm::ArrayRef<AttributeSpec> specs, llvm::StringRef key) {
  for (const AttributeSpec &spec : specs)
    if (each_name(spec, [&](llvm::StringRef name) { return name == key; }))
      return &spec;
  return nullptr;
}
llvm::StringRef nearest_suffix(llvm::ArrayRef<AttributeSpec> specs, llvm::StringRef key) {
  llvm::StringRef found;
  for (const AttributeSpec &spec : specs)
    if (each_name(spec, [&](llvm::StringRef name) {
          found = name;
          return ir::is_misspelling(key, name);
        }))
      return found;
  return {};
}

// A whole number; `open`: one that a symbol or a value of the program gives.
struct Whole {
  bool valid = false, open = false;
  int64_t number = 0;
};
Whole whole_of(const Application &app, const AttrValue &value) {
  if (value.form == AttrForm::Expr || value.form == AttrForm::Value)
    return {true, true, 0};
  bool number = value.form == AttrForm::Integer || value.form == AttrForm::Float;
  std::optional<Numbers> one = number ? numbers_of(app, value) : std::nullopt;
  return one && one->size() == 1 ? Whole{true, false, one->front()} : Whole{};
}

class Checker {
public:
  Checker(const Application &app, Outcome &out) : app_(app), out_(out) {}

  // The tensor whose dimensions attributes name, and the dimension where `dim` is absent.
  void look_at(uint32_t arg, int64_t absent) {
    const ir::Shape *shape = app_.shape(app_.args[arg]);
    if (!shape || !shape->ranked)
      return;
    shape_ = shape;
    if (std::optional<int64_t> dim = dim_attr(app_) ? dim_number(app_) : absent)
      position_ = place_of(*dim, shape->dims.size());
  }
  void in_group_of(std::optional<int64_t> ranks) { ranks_ = ranks; }

  bool run(const AttributeList &list) {
    const bool by_hand = is_by_hand();
    for (const auto &[key, value] : app_.program.attrs[app_.attrs].attrs) {
      llvm::StringRef name = app_.program.strings[key];
      const AttributeSpec *spec = find_spec(list.specs, name);
      if (!spec)
        spec = find_spec(kAnywhere, name);
      if (!spec && list.shared)
        spec = find_spec(kShared, name);
      if (!spec) {
        judge_name(list, name, by_hand && value.form != AttrForm::Null);
      } else if (value.form != AttrForm::Null && value.form != AttrForm::Value) {
        if (std::string expected = wrong(spec->form, value); !expected.empty())
          report(name, std::move(expected));
      }
    }
    return found_;
  }

private:
  // Whoever wrote the program by hand means what our rows know; recorders pass what frameworks
  // have.
  bool is_by_hand() const {
    const ir::Program &program = app_.program;
    if (!app_.op.spelling.valid() || program.producer.stated)
      return false;
    llvm::StringRef name = program.op_name(app_.op.spelling);
    if (name.consume_front("vjp."))
      name = name.rsplit('.').first;
    bool ours = program.is_own_dialect();
    bool alias = app_.op.alias || (app_.op.forward && app_.op.forward->alias);
    return (ours || !alias) && (!name.contains('.') || ir::starts_with(name, "spmd."));
  }
  // Whether another spelling of the op takes it: a program that is translated keeps such
  // attributes.
  bool is_of_a_spelling(llvm::StringRef name) const {
    const ResolvedOp &op = app_.op.forward ? *app_.op.forward : app_.op;
    return op.row && llvm::any_of(aliases(), [&](const Alias &alias) {
             return alias.op == op.row->name &&
                    find_spec(attributes_of(*op.row, &alias).specs, name);
           });
  }
  void report(llvm::StringRef name, std::string expected) {
    found_ = true;
    add_merged(out_.violations, 0, AttributeMismatch{name.str(), std::move(expected)});
  }
  void judge_name(const AttributeList &list, llvm::StringRef name, bool by_hand) {
    // `dim` is no slip, where an op has no dimensions to name.
    bool is_dim = find_spec(AttributeSpec{dim_names()}, name);
    llvm::StringRef near = is_dim ? llvm::StringRef() : nearest_suffix(list.specs, name);
    if (near.empty() && !is_dim)
      near = nearest_suffix(kAnywhere, name);
    if ((by_hand || !near.empty()) && is_of_a_spelling(name))
      return;
    if (near.empty() && by_hand && !is_dim && list.shared)
      near = nearest_suffix(kShared, name);
    if (!near.empty())
      return report(name, fmt::format("`{}`: the op has no attribute of this name", near.str()));
    if (!by_hand || list.open)
      return;
    std::string known;
    for (const AttributeSpec &spec : list.specs)
      known += (known.empty() ? "" : ", ") + std::string(spec.first_name());
    report(name, known.empty() ? "left out: the op has none of its own"
                               : fmt::format("left out: the op has {}", known));
  }

  // The number is a dimension among `rank`.
  std::string wrong_dim(const AttrValue &value, size_t rank) const {
    Whole dim = whole_of(app_, value);
    auto limit = static_cast<int64_t>(std::max<size_t>(rank, 1));
    if (dim.valid && (dim.open || (dim.number >= -limit && dim.number < limit)))
      return {};
    return fmt::format("a dimension, from {} to {}", -limit, limit - 1);
  }
  llvm::ArrayRef<AttrValue> items_of(const AttrValue &value) const {
    return value.form == AttrForm::List
               ? llvm::ArrayRef<AttrValue>(app_.program.lists[value.as<ir::AttrListId>()].items)
               : llvm::ArrayRef<AttrValue>(value);
  }
  std::string wrong_dims(const AttrValue &value, Form form) const {
    llvm::ArrayRef<AttrValue> items = items_of(value);
    for (const AttrValue &item : items)
      if (!whole_of(app_, item).valid)
        return std::string(describe(form));
    // A softmax takes several in some frameworks.
    if (form == Form::Dim && items.empty())
      return "a dimension";
    if (!shape_)
      return {};
    size_t rank = shape_->dims.size() + (form == Form::NewDim);
    llvm::SmallVector<int64_t, 6> seen;
    for (const AttrValue &item : items) {
      if (std::string text = wrong_dim(item, rank); !text.empty())
        return text;
      Whole dim = whole_of(app_, item);
      int64_t place = dim.number < 0 ? dim.number + static_cast<int64_t>(rank) : dim.number;
      if (!dim.open && llvm::is_contained(seen, place))
        return std::string(describe(form == Form::Order ? form : Form::Dims));
      seen.push_back(dim.open ? -1 : place);
    }
    return form == Form::Order && items.size() != rank ? std::string(describe(form)) : "";
  }
  std::string wrong_wholes(const AttrValue &value, Form form, int64_t least) const {
    for (const AttrValue &item : items_of(value)) {
      Whole whole = whole_of(app_, item);
      bool unstated = form == Form::Extents && item.form == AttrForm::Null;
      if (!unstated && (!whole.valid || (!whole.open && whole.number < least)))
        return std::string(describe(form));
    }
    return {};
  }
  std::string wrong_trailing(const AttrValue &value) const {
    if (std::string text = wrong_wholes(value, Form::Extents, 0); !text.empty() || !shape_)
      return text;
    llvm::ArrayRef<AttrValue> items = items_of(value);
    bool right = items.size() <= shape_->dims.size();
    std::string last;
    for (size_t i = 0; right && i < items.size(); ++i) {
      ir::Extent extent = shape_->dims[shape_->dims.size() - items.size() + i];
      Whole whole = whole_of(app_, items[i]);
      right &= whole.open || !extent.is_number() || extent.number() == whole.number;
      last += (i ? ", " : "") + (extent.is_number() ? std::to_string(extent.number()) : "?");
    }
    if (right)
      return {};
    return items.size() > shape_->dims.size()
               ? fmt::format("of at most {} dimensions", shape_->dims.size())
               : fmt::format("[{}], the extents of the last dimensions", last);
  }

  // Positions in dimension `dim`, on one rank.
  std::optional<int64_t> extent() const {
    if (!shape_ || !position_ || !shape_->dims[*position_].is_number())
      return std::nullopt;
    return shape_->dims[*position_].number();
  }
  std::string wrong_position(const AttrValue &value, Form form) const {
    Whole whole = whole_of(app_, value);
    if (!whole.valid)
      return "a whole number";
    std::optional<int64_t> n = extent();
    if (whole.open || !n)
      return {};
    std::optional<int64_t> start =
        any_attr(app_, {"start"}) ? number_attr(app_, {"start"}) : std::optional<int64_t>(0);
    switch (form) {
    case Form::Place:
      return whole.number >= -*n && whole.number < *n ? ""
                                                      : fmt::format("from {} to {}", -*n, *n - 1);
    case Form::Start:
      return whole.number >= -*n && whole.number <= *n ? "" : fmt::format("from {} to {}", -*n, *n);
    case Form::End: {
      // Who takes a dimension from its beginning to no matter where takes it whole.
      bool to_the_end = whole.number >= INT32_MAX || start == 0;
      return whole.number >= -*n && (whole.number <= *n || to_the_end)
                 ? ""
                 : fmt::format("from {} to {}", -*n, *n);
    }
    case Form::Length: {
      int64_t first = !start ? 0 : *start < 0 ? *start + *n : *start;
      return whole.number >= 0 && first + whole.number <= *n
                 ? ""
                 : fmt::format("from 0 to {}", std::max<int64_t>(0, *n - first));
    }
    default:
      return whole.number >= 0 && whole.number <= *n ? "" : fmt::format("from 0 to {}", *n);
    }
  }
  std::string wrong_pairs(const AttrValue &value) const {
    std::string expected(describe(Form::Pairs));
    if (value.form != AttrForm::List)
      return expected;
    llvm::SmallVector<int64_t, 8> from, to;
    for (const AttrValue &pair : items_of(value)) {
      llvm::ArrayRef<AttrValue> ends = items_of(pair);
      if (pair.form != AttrForm::List || ends.size() != 2)
        return expected;
      for (size_t i = 0; i < 2; ++i) {
        Whole rank = whole_of(app_, ends[i]);
        llvm::SmallVector<int64_t, 8> &side = i ? to : from;
        if (!rank.valid || (!rank.open && (rank.number < 0 || (ranks_ && rank.number >= *ranks_) ||
                                           llvm::is_contained(side, rank.number))))
          return expected;
        if (!rank.open)
          side.push_back(rank.number);
      }
    }
    return {};
  }

  // What is expected, where the value is not of the form; else nothing.
  std::string wrong(Form form, const AttrValue &value) const {
    auto unless = [&](bool right) { return right ? std::string() : std::string(describe(form)); };
    bool whole = whole_of(app_, value).valid;
    switch (form) {
    case Form::Any:
      return {};
    case Form::Flag:
      return unless(value.form == AttrForm::Bool ||
                    (value.form == AttrForm::Integer && value.bits <= 1));
    case Form::Word:
      return unless(value.form == AttrForm::String);
    case Form::Number:
      return unless(whole || value.form == AttrForm::Float || value.form == AttrForm::Bool ||
                    value.form == AttrForm::Scale);
    case Form::Whole:
      return unless(whole);
    case Form::Count:
      return wrong_wholes(value, form, 0);
    case Form::Positive:
      return wrong_wholes(value, form, 1);
    case Form::Extents:
      return wrong_wholes(value, form, -1);
    case Form::Trailing:
      return wrong_trailing(value);
    case Form::Dim:
    case Form::Dims:
    case Form::NewDim:
    case Form::Order:
      return wrong_dims(value, form);
    case Form::Place:
    case Form::Start:
    case Form::End:
    case Form::Length:
    case Form::Part:
      return wrong_position(value, form);
    case Form::DType:
      return unless(value.form != AttrForm::String || dtype_attr(app_) != ir::DType::Unknown);
    case Form::Reduction:
      return unless((value.form == AttrForm::Integer && value.bits < 3) ||
                    (value.form == AttrForm::String && reduction_of(app_)));
    case Form::Rank: {
      Whole rank = whole_of(app_, value);
      bool right = rank.open || !ranks_ || (rank.number >= 0 && rank.number < *ranks_);
      return rank.valid && right ? ""
             : ranks_            ? fmt::format("a rank of the group, from 0 to {}", *ranks_ - 1)
                                 : std::string(describe(form));
    }
    case Form::Pairs:
      return wrong_pairs(value);
    default:
      return unless(is_of_program(form, value));
    }
    return {};
  }
  // What names something of the program: its axes, types, functions.
  bool is_of_program(Form form, const AttrValue &value) const {
    auto all = [&](AttrForm each) {
      return llvm::all_of(items_of(value),
                          [&](const AttrValue &item) { return item.form == each; });
    };
    switch (form) {
    case Form::Axes:
      return value.form == AttrForm::Axes;
    case Form::Kinds:
      return all(AttrForm::Kind);
    case Form::Type:
      return value.form == AttrForm::Claim;
    case Form::Types:
      return value.form == AttrForm::List && all(AttrForm::Claim);
    case Form::Factor:
      return value.form == AttrForm::Scale;
    case Form::Function:
      return value.form == AttrForm::Function;
    case Form::Mesh:
      return value.form == AttrForm::String &&
             ir::find_mesh(app_.program, app_.program.strings[value.as<ir::StringId>()]).valid();
    case Form::NoVjp:
      return lacks_vjp(app_.program, app_.attrs);
    default:
      return true;
    }
  }

  const Application &app_;
  Outcome &out_;
  const ir::Shape *shape_ = nullptr;
  std::optional<unsigned> position_;
  std::optional<int64_t> ranks_;
  bool found_ = false;
};

int64_t absent_dim(const OpDef &row) {
  return row.placed.empty() || row.default_dim == DefaultDim::First ? 0
         : row.default_dim == DefaultDim::Second                    ? 1
                                                                    : -1;
}

// Entries of an index are whole numbers; what selects or masks is no float, under the names of
// ours, whose operands are what the row says.
bool check_indices(const Application &app, const Equation &equation, const Binding &binding,
                   Outcome &out) {
  bool found = false;
  auto check = [&](const Ref &ref, bool inside) {
    const Slot *slot = ref.operand == kGenerator ? nullptr : binding[ref.operand];
    bool index = ref.index != kNoFactor ||
                 (slot && equation.operands[ref.operand].list == ListForm::Multiplied);
    if (ref.role != RefRole::Condition || !slot || (!index && (inside || app.op.alias)))
      return;
    for (unsigned i = 0; i < slot->count; ++i) {
      const ir::Shape *shape = app.shape(app.args[slot->first + i]);
      DTypeClass form = shape ? ir::info(shape->dtype).form : DTypeClass::Unknown;
      if (form != DTypeClass::Float && form != DTypeClass::Complex)
        continue;
      found = true;
      add_merged(out.violations, 0,
                 OperandMismatch{fmt::format("{} as operand {}",
                                             index ? "whole numbers" : "Booleans or whole numbers",
                                             equation.operands[ref.operand].name),
                                 fmt::format("{} is given", ir::info(shape->dtype).word)});
    }
  };
  for (unsigned t = 0; t < equation.term_count; ++t)
    for (unsigned a = 0; a < equation.terms[t].atom_count; ++a) {
      const Atom &atom = equation.atoms[equation.terms[t].first_atom + a];
      for (unsigned r = 0; atom.form != Atom::Form::Integer && r < atom.count; ++r)
        check(equation.refs[atom.first + r], atom.form == Atom::Form::Function);
    }
  return found;
}

} // namespace

bool check_attributes(const Application &app, const OpDef &row, const Binding &binding,
                      Outcome &out) {
  bool found = check_indices(app, row.equation.equation, binding, out);
  if (app.attrs == app.program.no_attrs())
    return found;
  // A derived row has the attributes of its op, and takes the operands of that behind its
  // gradients.
  const OpDef &means = row.derivative_of ? *row.derivative_of : row;
  const ResolvedOp &op = app.op.forward ? *app.op.forward : app.op;
  // Of the row that the name means, then of the one that it chose.
  AttributeList list = attributes_of(op.row ? *op.row : means, op.alias);
  if (op.row && op.row != &means) {
    AttributeList chosen = attributes_of(means, op.alias);
    list.specs.append(chosen.specs.begin(), chosen.specs.end());
    list.open |= chosen.open;
  }
  Checker checker(app, out);
  const Slot *first = means.equation.equation.operand_count ? binding[0] : nullptr;
  ForwardCall forward;
  if (first && row.derivative_of) {
    forward = forward_call(app, row);
    first = forward.slots.empty() ? nullptr : &forward.slots.front();
  }
  if (first && first->count)
    checker.look_at(first->first, absent_dim(means));
  list.open |= op.assumed;
  return checker.run(list) || found;
}

bool check_boundary_attributes(const Application &app, Outcome &out) {
  return app.attrs != app.program.no_attrs() &&
         Checker(app, out).run(attributes_of_boundary(app.op.boundary));
}

bool check_transition_attributes(const Application &app, TransitionOp op,
                                 std::optional<int64_t> ranks, Outcome &out) {
  Checker checker(app, out);
  checker.in_group_of(ranks);
  return checker.run(attributes_of_transition(op));
}

} // namespace spmd::rules
