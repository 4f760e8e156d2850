// What a program is: instructions in single-assignment form over interned tables, as read and not
// yet typed. Every reader builds one through Builder; every printer and every checker reads it.
// Nothing is ambient: mesh, local axes and gradient mode of an instruction are in its context.
#pragma once

#include "ir/attrs.h"
#include "ir/dialect/words.h"
#include "ir/ids.h"
#include "ir/location.h"
#include "ir/mesh/mesh.h"
#include "ir/mesh/scale.h"
#include "ir/shape.h"
#include "ir/support/store.h"
#include "ir/type.h"

#include "llvm/ADT/DenseMap.h"

#include <optional>
#include <string>
#include <vector>

namespace spmd::ir {

enum class Tristate : uint8_t { Unstated, False, True };
enum class Role : uint8_t { Input, Param, Buffer, Const, OptState, Token };
enum class OutputRole : uint8_t { Output, Loss, Grad, State };
enum class Phase : uint8_t { Unstated, Forward, Backward, Remat, Optimizer };
enum class Mode : uint8_t { Global, Local, Gradual };
enum class ProgramPhase : uint8_t { Forward, Backward, Joint, Step };

inline constexpr std::array<std::string_view, 6> kRoleWords = {"input", "param",     "buffer",
                                                               "const", "opt_state", "token"};
inline constexpr std::array<std::string_view, 4> kOutputRoleWords = {"output", "loss", "grad",
                                                                     "state"};
inline constexpr std::array<std::string_view, 5> kPhaseWords = {"", "fwd", "bwd", "remat", "opt"};
inline constexpr std::array<std::string_view, 3> kModeWords = {"global", "local", "gradual"};
inline constexpr std::array<std::string_view, 4> kProgramPhaseWords = {"forward", "backward",
                                                                       "joint", "step"};

// The name of a value without its `%`: a number (the fast form, no leading zeros) or text.
struct ValueName {
  static constexpr uint32_t kNumber = 0x8000'0000;
  uint32_t bits = ~0u;
  static ValueName number(uint32_t n) { return {n | kNumber}; } // n < 2^31 - 2
  static ValueName text(StringId id) { return {id.index}; }
  bool is_number() const { return bits & kNumber; }
  friend bool operator==(ValueName, ValueName) = default;
};

struct Value {
  ValueName name;
  TypeId declared;      // what the program claims; none: nothing
  ShapeId shape;        // local, with dtype; none if not known
  ShapeId global_shape; // none if not stated
  ValueId alias_of;
  ValueId grad_of;
  MeshId mesh; // stated for this value; none: that of its context
  Tristate requires_grad = Tristate::Unstated;
};
static_assert(sizeof(Value) == 28);

// One operand. A named operand is a Name entry followed by the operand itself; a list is a block of
// its own.
struct Operand {
  enum class Form : uint8_t { Value, Literal, List, Name };
  uint32_t index = 0; // ValueId, index into literals, OperandsId, StringId
  Form form = Form::Value;
  bool mut = false; // written in place
  uint16_t zero = 0;

  static Operand value(ValueId id, bool mut = false) { return {id.index, Form::Value, mut}; }
  static Operand literal(uint32_t id) { return {id, Form::Literal}; }
  static Operand list(OperandsId id, bool mut = false) { return {id.index, Form::List, mut}; }
  static Operand name(StringId id) { return {id.index, Form::Name}; }
  bool is_value() const { return form == Form::Value; }
  ValueId as_value() const { return ValueId{index}; }
  OperandsId as_list() const { return OperandsId{index}; }
  StringId as_name() const { return StringId{index}; }
  friend bool operator==(const Operand &, const Operand &) = default;
};
static_assert(sizeof(Operand) == 8);

// An instruction holds the spelling it was read with; `rules` resolves each spelling once per
// program.
struct Inst {
  OpNameId op;
  AttrsId attrs;
  OperandsId operands;
  ValueId first_result;
  LocId loc;      // none if not stated
  ValueId bwd_of; // a result of the forward op that this one belongs to; none if not stated
  uint32_t result_count = 0;
  ContextId context;
  Phase phase = Phase::Unstated;
  uint8_t zero = 0;

  ValueId result(uint32_t i) const { return ValueId{first_result.index + i}; }
};
static_assert(sizeof(Inst) == 32);

// Mesh, local axes and modes of an instruction.
struct Context {
  MeshId mesh;
  AxisSet local;         // axes that a region made local; Mode::Local makes all of them so
  bool grad = true;      // false: inside no_grad
  bool check = true;     // false: results are taken as stated
  bool implicit = false; // redistribution is implicit
  uint8_t zero = 0;
  friend bool operator==(const Context &, const Context &) = default;
};
inline uint64_t hash_of(const Context &c) {
  return mix(mix(c.mesh.index, c.local.bits()), c.grad | c.check << 1 | c.implicit << 2);
}

// Instructions [first, last) of a body, contiguous in Program::insts.
struct Body {
  InstId first, last;
  uint32_t size() const { return last.index - first.index; }
};

struct FunctionParam {
  ValueId value;
  ClaimId grad; // what its backward returns; none: the dual
};

struct Function {
  StringId name; // with its `@`
  bool opaque = false;
  ContextId context; // none if not stated
  std::vector<FunctionParam> params;
  Body body;                 // unless opaque
  OperandsId results;        // unless opaque
  std::vector<ClaimId> outs; // opaque: the types of the results
  uint64_t origin = 0;       // byte offset in the input
};

struct Sync {
  AxisRefsId axes;
  Combiner op = Combiner::Sum; // Sum or Avg
};

// The setting with which the framework would reduce a gradient over the axes.
struct SyncHint {
  AxisRefsId axes;
  StringId text; // `the attribute sequence_parallel`
};

// The gradient contract of a parameter (rules/README.md, "Gradients").
struct GradContract {
  ClaimId grad; // as backward leaves it; none: the dual
  ClaimId step; // what the optimizer needs; none: the parameter's own
  std::vector<Sync> sync;
  std::vector<SyncHint> hints;
  bool stated = false; // a `grad` object stood in the program, perhaps an empty one
};

struct Param {
  ValueId value;
  Role role = Role::Input;
  StringId name; // the framework's path; none if not stated
  GradContract grad;
  // Axes along which ranks had one value before the first step and have several now, as a recorder
  // saw it; none if it saw no such thing.
  AxisRefsId drifted;
  // Axes along which ranks had one value where the recorded step began and several after a later
  // step, `drift_step`, counted from 1; none if a recorder saw no such thing.
  AxisRefsId drifts_later;
  int64_t drift_step = 1;
  // Axes on which a recorder compared ranks to find the type, and nothing states it; else none.
  AxisRefsId observed;
  // Axes along which each rank has made its block by itself, as a recorder saw it: it is no part of
  // a whole tensor that has been there, so that its rows are those that the program takes them for.
  AxisRefsId separate;
  // Axes along which each rank has taken its block out of one whole tensor that all of them had, as
  // a recorder saw it: `taken_blocks` blocks of dimension `taken_dim`, those of others in between.
  AxisRefsId taken;
  int64_t taken_dim = 0, taken_blocks = 1;
  // The gradient that the optimizer gets, over the one that finite differences of the loss give, as
  // a recorder measured them; 1: they agree, up to a factor that all gradients share.
  std::optional<double> gradient_ratio;
  LocId loc;
};

struct Output {
  ValueId value;
  OutputRole role = OutputRole::Output;
  ValueId of;    // grad, state: of which parameter
  StringId name; // none if not stated
  TypeId declared;
  uint64_t origin = 0;
};

struct SymbolInfo {
  StringId name;
  std::optional<int64_t> min, max, multiple_of, hint;
  uint64_t origin = 0; // byte offset in the input
};

// In the order of their declaration, found by name.
class SymbolTable {
public:
  void push_back(const SymbolInfo &symbol) {
    by_name_.try_emplace(symbol.name.index, static_cast<uint32_t>(rows_.size()));
    rows_.push_back(symbol);
  }
  const SymbolInfo *find(StringId name) const { // null if there is none
    auto at = by_name_.find(name.index);
    return at == by_name_.end() ? nullptr : &rows_[at->second];
  }
  const SymbolInfo &operator[](size_t i) const { return rows_[i]; }
  size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  auto begin() const { return rows_.begin(); }
  auto end() const { return rows_.end(); }

private:
  std::vector<SymbolInfo> rows_;
  llvm::DenseMap<uint32_t, uint32_t> by_name_; // keyed by StringId
};

// A prime that stands in layouts of meshes for a symbol, or for an expression that is no product
// (ir/mesh/symbols.h).
struct SymbolPrime {
  ExprId atom;
  int64_t prime;
};

// A typing rule for an op that is not ours: an equation, or the op that it behaves like.
struct UserRule {
  StringId op;
  StringId equation; // none if `like`
  StringId like;     // none if `equation`
  uint64_t origin = 0;
  bool configured = false; // it is of the tool's configuration, not of the program
};

struct Suppression {
  StringId finding;
  StringId scope; // glob; none if not stated
  FrameId loc;    // none if not stated
  StringId reason;
  StringId until; // YYYY-MM-DD; none if not stated
  uint64_t origin = 0;
  bool configured = false; // it is of the tool's configuration, not of the program
};

// A test assertion of the program: a finding on the axes, or the type of a value.
struct Expectation {
  InstId inst;
  StringId finding; // none: a type is expected
  bool warning = false;
  std::vector<StringId> axes;
  ValueId value;
  TypeId type;
};

struct Producer {
  StringId name, version, framework, frontend; // none if not stated
  bool stated = false;
};

// What a recorder could not see. Derivatives: functions bring their own backward, and which
// instructions are theirs is not recorded.
enum class Missing : uint8_t { Types, Grads, Locs, Groups, Regions, Shapes, Mutation, Derivatives };
inline constexpr std::array<std::string_view, 8> kMissingWords = {
    "types", "grads", "locs", "groups", "regions", "shapes", "mutation", "derivatives"};

// The sizes of all axes of all meshes in their common pieces, made on demand
// (ir/mesh/axis_scale.h).
struct AxisScales {
  std::vector<ScaleId> of; // by mesh and axis, kMaxAxes to a mesh
};

struct Program {
  StringTable strings;
  ExprTable exprs;
  Interner<TypeId> types;
  Interner<ScaleId> scales;
  AxisScales axis_scales;
  Interner<ShapeId> shapes;
  Interner<ShardSizesId> shard_sizes;
  Interner<AttrsId> attrs;
  Interner<AttrListId> lists;
  Interner<AxisRefsId> axis_refs;
  Interner<ClaimId> claims;
  ListStore<OperandsId, Operand> operand_lists;
  std::vector<AttrValue> literals; // operands that are not values
  Store<MeshId> meshes;
  std::vector<Group> groups;
  Store<FileId> files;
  Interner<FrameId> frames;
  Store<LocId> locs;
  Interner<ContextId> contexts; // 0: the default of the program
  Store<FunctionId> functions;
  Store<ValueId> values;
  Store<InstId> insts;
  std::vector<uint64_t> origins; // per instruction: byte offset in the input
  std::vector<uint64_t> param_origins;

  // Spellings of ops: OpNameId is the string's id.
  llvm::StringRef op_name(OpNameId id) const { return strings[StringId{id.index}]; }

  // The dialect that spellings are looked up in.
  llvm::StringRef dialect_name() const {
    return dialect.valid() ? strings[dialect] : llvm::StringRef(kOwnDialect);
  }
  bool is_own_dialect() const { return dialect_name() == llvm::StringRef(kOwnDialect); }
  // A named operand that is written: the tensor that a result is put into.
  bool is_out(StringId name) const { return name.valid() && strings[name] == "out"; }

  Producer producer;
  StringId dialect; // none: ours
  Mode mode = Mode::Global;
  ProgramPhase phase = ProgramPhase::Forward;
  uint32_t minor_version = 0;
  std::vector<StringId> requires_features;
  uint32_t missing = 0; // bit per Missing
  std::optional<int64_t> world, rank, op_count;
  SymbolTable symbols;
  std::vector<SymbolPrime> symbol_primes; // none: all axes have sizes in numbers
  std::vector<UserRule> rules;
  std::vector<Param> params;
  Body main;
  std::vector<Output> outputs;
  std::vector<Suppression> suppressions;
  std::vector<std::pair<InstId, StringId>> ignores; // finding names accepted at one op, in order
  std::vector<Expectation> expectations;            // in order of the instructions
  std::vector<std::pair<StringId, StringId>>
      extras; // x_* keys of the document with their JSON text

  Program();
  Program(Program &&) = default;
  Program &operator=(Program &&) = default;

  // The axes on which only kinds are judged: of a local program, of a local region, or local by the
  // policy of the mesh.
  AxisSet local_axes(const Context &context) const;
  // Those that are local on the mesh wherever the program is.
  AxisSet local_axes(MeshId mesh) const { return local_axes({.mesh = mesh, .local = {}}); }
  bool lacks(Missing what) const { return missing >> unsigned(what) & 1; }
  const AttrValue *find(AttrsId attrs, llvm::StringRef key) const; // null if absent
  const Param *find_param(ValueId value) const; // null if it is not declared; linear
  ScaleId one() const { return ScaleId{0}; }
  AttrsId no_attrs() const { return AttrsId{0}; }
  OperandsId no_operands() const { return OperandsId{0}; }
};

// `%` and the name.
std::string print(ValueName name, const StringTable &names);
// Number if all digits without leading zeros and small enough, else interned text.
ValueName make_name(llvm::StringRef text, StringTable &names);

// Assembles a program. Bodies nest: instructions of a function are kept apart until it is closed,
// so that each body is contiguous. Names are resolved here: one scope per body.
class Builder {
public:
  explicit Builder(Program &program) : program(program) { open_body(); }
  Program &program;

  void open_body();  // a new scope of names and a new list of instructions
  Body close_body(); // appends it to the program and drops the scope
  void finish() { program.main = close_body(); }

  // None if the name is taken in the innermost scope.
  std::optional<ValueId> define(Value value);
  std::optional<ValueId> lookup(ValueName name) const; // innermost scope only
  // Functions are shared by the whole program; a name may be used before its body is known.
  FunctionId function(llvm::StringRef name); // with `@`; made empty if new
  bool is_defined(FunctionId id) const;
  void mark_defined(FunctionId id);

  // Results must have been defined just before, in order. Returns its index in the open body.
  uint32_t add(Inst inst, uint64_t origin);
  Inst &inst(uint32_t index) { return bodies_.back().insts[index]; }
  uint32_t body_size() const { return static_cast<uint32_t>(bodies_.back().insts.size()); }
  unsigned depth() const { return static_cast<unsigned>(bodies_.size()); }
  // Facts about an instruction of the open body; they are renumbered when it is closed.
  void ignore(uint32_t index, StringId finding);
  void expect(uint32_t index, Expectation expectation);

  StringId string(llvm::StringRef text) { return program.strings.add(text); }
  AttrsId attrs(AttrDict dict); // sorts canonically
  uint32_t literal(AttrValue value);
  LocId location(FrameId frame, StringId scope);

private:
  struct OpenBody {
    std::vector<Inst> insts;
    std::vector<uint64_t> origins;
    std::vector<ValueId> by_number;            // names that are small numbers: the fast form
    llvm::DenseMap<uint32_t, ValueId> by_name; // all others, keyed by ValueName::bits
    std::vector<std::pair<uint32_t, StringId>> ignores;
    std::vector<std::pair<uint32_t, Expectation>> expectations;
  };
  std::vector<OpenBody> bodies_;
  llvm::DenseMap<uint32_t, FunctionId> functions_;
  std::vector<bool> defined_;
};

} // namespace spmd::ir
