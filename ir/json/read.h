// The reader of JSON traces: one pass over each table, in the order in which they need one another,
// whatever their order in the text. Every function reads the one value at hand and reports what is
// wrong with it; types, shapes and attributes that were read before are found again by their text.
// Relies on the cursor for grammar and positions, on ClaimBuilder for claims, on Builder for names.
#pragma once

#include "ir/claims.h"
#include "ir/input/input.h"
#include "ir/json/read_cursor.h"
#include "ir/program.h"
#include "ir/support/successors.h"

#include "llvm/ADT/DenseSet.h"

namespace spmd::ir {

// The known members of the object at hand; when it goes, the cursor stands behind the object.
class JsonMembers {
public:
  // Moves to the value of a key; false if the key is absent.
  bool at(unsigned key) const {
    if (values_[key] == JsonCursor::kAbsent || json_.failed())
      return false;
    json_.seek(values_[key]);
    return true;
  }
  bool has(unsigned key) const { return values_[key] != JsonCursor::kAbsent; }
  // The text of a value; empty if the key is absent.
  llvm::StringRef raw(unsigned key) const {
    return has(key) && !json_.failed() ? json_.raw(values_[key], ends_[key]) : llvm::StringRef();
  }
  JsonCursor::Token token() const { return object_; }
  JsonCursor::Token token(unsigned key) const { return has(key) ? values_[key] : object_; }
  // False if the value is no object.
  explicit operator bool() const { return is_object_; }
  bool has_unknown() const { return has_unknown_; } // keys beside those that were asked for

  JsonMembers(const JsonMembers &) = delete;

protected:
  explicit JsonMembers(JsonCursor &json) : json_(json) {}
  JsonCursor &json_;
  const JsonCursor::Token *values_ = nullptr, *ends_ = nullptr; // by key
  JsonCursor::Token object_ = 0;
  bool is_object_ = false, has_unknown_ = false;
};

template <size_t N> class JsonObject : public JsonMembers {
public:
  template <class F>
  JsonObject(JsonCursor &json, const std::array<std::string_view, N> &keys, F &&unknown)
      : JsonMembers(json) {
    values_ = fields_.at.data();
    ends_ = fields_.end.data();
    is_object_ = json.fields(keys, fields_, [&](auto &&...key) {
      has_unknown_ = true;
      unknown(key...);
    });
    object_ = fields_.object;
    end_ = json.at();
  }
  ~JsonObject() { json_.seek(end_); }

private:
  JsonCursor::Fields<N> fields_;
  JsonCursor::Token end_;
};

// Ids by the raw text they were read from.
class RawCache {
public:
  struct Key {
    llvm::StringRef a = {}, b = {}, c = {};
    uint64_t salt = 0; // whatever else the meaning depends on
    friend bool operator==(const Key &x, const Key &y) {
      return x.salt == y.salt && x.a == y.a && x.b == y.b && x.c == y.c;
    }
  };
  std::optional<uint32_t> find(const Key &key) {
    uint32_t at = order_.likely();
    if (at == Successors::kNone || !(entries_[at].key == key))
      at = slot_of(key);
    if (at == IndexTable::kEmpty)
      return std::nullopt;
    order_.meet(at);
    return entries_[at].id;
  }
  void add(const Key &key, uint32_t id) {
    uint32_t &slot = slot_of(key);
    if (slot != IndexTable::kEmpty)
      return;
    slot = static_cast<uint32_t>(entries_.size());
    entries_.push_back({key, id});
    table_.inserted();
    order_.meet(slot);
  }

private:
  struct Entry {
    Key key;
    uint32_t id;
  };
  uint32_t &slot_of(const Key &key) {
    uint64_t hash = mix(hash_bytes(key.a.data(), key.a.size()), key.salt);
    for (llvm::StringRef part : {key.b, key.c})
      hash = part.empty() ? hash : mix(hash, hash_bytes(part.data(), part.size()));
    return table_.find(hash, [&](uint32_t i) { return entries_[i].key == key; });
  }
  Successors order_;
  std::vector<Entry> entries_;
  IndexTable table_;
};

// The members of a value; a claim has the first of them.
enum ValueKey : unsigned {
  DTypeKey,
  ShapeKey,
  GlobalShapeKey,
  MeshKey,
  TypeKey,
  SpecKey,
  ScaleKey,
  ClaimKeyCount,
  IdKey = ClaimKeyCount,
  RequiresGradKey,
  GradOfKey,
  AliasOfKey,
  ValueKeyCount,
};
inline constexpr std::array<std::string_view, ClaimKeyCount> kClaimKeys = {
    "dtype", "shape", "gshape", "mesh", "type", "spec", "scale"};
inline constexpr std::array<std::string_view, ValueKeyCount> kValueKeys = {
    "dtype", "shape", "gshape",        "mesh",    "type",    "spec",
    "scale", "id",    "requires_grad", "grad_of", "alias_of"};

class JsonReader {
public:
  using Token = JsonCursor::Token;

  JsonReader(llvm::StringRef bytes, const ReadOptions &options)
      : json_(bytes), options_(options), program_(result_.program), builder_(program_) {}
  ReadResult read();

private:
  // read.cc: the document.
  void document();
  void report_rest();
  bool recognise(const JsonMembers &top);
  void version();
  void facts(const JsonMembers &top);
  void tables(const JsonMembers &top);
  void features();
  void missing();
  void producer();
  void header(const JsonMembers &top);
  void body(const JsonMembers &top);
  void count_ops(const JsonMembers &top);
  void check_functions();
  void keep_extra(llvm::StringRef key);
  void unknown(llvm::StringRef key, llvm::ArrayRef<std::string_view> known);

  // read_lines.cc: the records of a stream.
  void records();
  void record();
  void definitions();
  void end();

  // read_tables.cc, read_mesh.cc: what instructions refer to.
  void symbols();
  void symbol(llvm::StringRef name);
  void meshes();
  void mesh();
  void within(Mesh &mesh);
  void axes(Mesh &mesh);
  // `of`: the pieces of a flattened axis, which wait for the other axes.
  Axis axis(const Mesh &mesh, Token &of);
  int64_t ranks(const Mesh &mesh);
  Axis axis_of_parent(const Mesh &mesh);
  void axis_pieces(const Mesh &mesh, Axis &axis);
  void layout(const Mesh &mesh, Layout &layout);
  void groups();
  void group(llvm::StringRef key);
  llvm::SmallVector<AxisId, 2> axes_of(MeshId mesh);
  void ranks(Group &group);
  void files();
  void locs();
  Frame loc();
  void scopes();
  void contexts();
  Context context();
  void rules();
  void suppressions();
  void suppression();

  // read_values.cc: names, types and shapes.
  std::optional<llvm::StringRef> word(llvm::ArrayRef<std::string_view> words, std::string_view what,
                                      unsigned &index);
  template <class E>
  void enumeration(llvm::ArrayRef<std::string_view> words, std::string_view what, E &out,
                   int first = 0) {
    unsigned index = 0;
    if (word(words, what, index))
      out = static_cast<E>(index + first);
  }
  StringId text();
  StringId identifier(std::string_view what);
  static bool is_identifier(llvm::StringRef text);
  StringId finding();
  std::optional<ValueName> value_name();
  ValueId value_ref();
  std::optional<int64_t> number_or_extent(std::string_view name);
  std::optional<Extent> extent(std::string_view name);
  bool check_symbols(Extent extent, Token token, std::string_view name);
  ShapeId shape(const JsonMembers &members, unsigned dims);
  ShapeId read_shape(const JsonMembers &members, unsigned dims);
  TypeId type(const JsonMembers &members, MeshId mesh, std::optional<unsigned> rank);
  TypeId read_type(const JsonMembers &members, MeshId mesh, std::optional<unsigned> rank);
  bool kinds(ClaimBuilder &claims);
  bool spec(ClaimBuilder &claims);
  ScaleId scale();
  bool scales_are_full(Token token);
  MeshId mesh_named(llvm::StringRef name); // the first one; none if there is none
  MeshId mesh_ref();
  MeshId stated_mesh(const JsonMembers &members, MeshId mesh);
  Claim claim_of(const JsonMembers &members, MeshId mesh, std::optional<unsigned> rank);
  // A claim that is an object of its own, or null, which says nothing.
  ClaimId claim(MeshId mesh, std::optional<unsigned> rank);
  Value value(const JsonMembers &members, MeshId mesh, bool grads_known);
  // Defines it under its `id`; none if that fails.
  ValueId define(const JsonMembers &members, MeshId mesh, bool grads_known = true);
  std::optional<unsigned> rank_of(ShapeId shape) const;
  std::optional<unsigned> rank_of(ValueId value) const {
    return rank_of(program_.values[value].shape);
  }

  // read_attrs.cc
  // What the meaning of attributes depends on.
  struct OpShape {
    MeshId mesh;
    bool states_type = false;                              // the op takes a whole type
    llvm::SmallVector<std::optional<unsigned>, 4> in, out; // numbers of dimensions, where known
    std::optional<unsigned> rank_in(size_t i) const { return i < in.size() ? in[i] : std::nullopt; }
    std::optional<unsigned> rank_out(size_t i) const {
      return i < out.size() ? out[i] : std::nullopt;
    }
  };
  AttrsId attrs(llvm::StringRef raw, const OpShape &op);
  AttrDict read_attrs(const OpShape &op);
  std::optional<AttrValue> whole_type(MeshId mesh, std::optional<unsigned> rank);
  bool is_nested_claim();
  AttrValue attr_value(llvm::StringRef name, const OpShape &op);
  std::optional<KindWord> kind();
  AttrValue kinds_value();
  AxisRef axis_ref(llvm::StringRef text);
  void axis_refs(llvm::SmallVectorImpl<AxisRef> &refs);
  AttrValue axes_value();
  AxisRefsId declared_axes(MeshId mesh);
  AttrValue claim_list(const OpShape &op, bool results);
  AttrValue plain_value();
  bool is_too_deep(); // reports it
  AttrValue plain_object();
  std::optional<AttrValue> wrapped(bool strings);
  std::optional<AttrValue> wrapped_value(const JsonMembers &members);
  void regions(AttrDict &dict);

  // read_operands.cc
  void operands(llvm::SmallVectorImpl<Operand> &out);
  Operand operand();
  AttrValue literal();
  void named_operands(llvm::SmallVectorImpl<Operand> &out, AttrDict &literals);
  void mark_mutated(llvm::MutableArrayRef<Operand> operands);

  // read_calls.cc
  Operand argument();
  llvm::SmallVector<Operand, 8> read_call(const JsonMembers &members, unsigned args,
                                          unsigned kwargs, Inst &inst, AttrDict &literals);

  // read_ops.cc, read_functions.cc
  void ops();
  void op();
  OpNameId op_name(const JsonMembers &members, OpShape &shape);
  BlockId read_operands(const JsonMembers &members, Inst &inst, AttrDict &literals, OpShape &shape);
  AttrsId all_attrs(const JsonMembers &members, const AttrDict &literals, const OpShape &shape);
  void results(Inst &inst, OpShape &shape);
  void assertions(const JsonMembers &members, uint32_t index);
  void expectation(uint32_t index);
  LocId location(const JsonMembers &members, unsigned loc, unsigned scope);
  void functions();
  void function(llvm::StringRef name);
  void function_params(Function &function, MeshId mesh);
  void params();
  void param();
  void late_gradients();
  GradContract gradient(MeshId mesh, std::optional<unsigned> rank);
  void syncs(std::vector<Sync> &out, MeshId mesh);
  void hints(std::vector<SyncHint> &out, MeshId mesh);
  void outputs();
  void output();
  // An index into a table of that many entries.
  std::optional<uint32_t> index(size_t size, std::string_view table);
  MeshId mesh_of(ContextId context) const;
  MeshId mesh_of(ValueId value) const { return value_meshes_[value.index]; }

  template <size_t N> JsonObject<N> object(const std::array<std::string_view, N> &keys) {
    return JsonObject<N>(json_, keys, [this, &keys](llvm::StringRef key) { unknown(key, keys); });
  }
  void require(const JsonMembers &members, unsigned key, std::string_view word) {
    if (members && !members.has(key))
      json_.error(members.token(), "trace-key", "`" + std::string(word) + "` is missing", word);
  }

  JsonCursor json_;
  const ReadOptions &options_;
  ReadResult result_;
  Program &program_;
  Builder builder_;
  std::vector<FrameId> frames_;
  std::vector<StringId> scopes_;
  llvm::DenseSet<uint32_t> symbols_;        // names
  llvm::DenseMap<uint32_t, MeshId> meshes_; // by name, as far as they are entered
  size_t meshes_entered_ = 0;
  std::vector<ContextId> contexts_;  // by their index in the trace
  ContextId context_;                // of ops that name none
  std::vector<MeshId> value_meshes_; // by ValueId
  std::vector<std::pair<FunctionId, Token>> region_uses_;
  // Parameters whose `grad_of` waits for the ops, and where it stands.
  struct LateGradient {
    ValueId value;
    ValueName of;
    uint64_t offset;
    std::string path;
  };
  std::vector<LateGradient> late_gradients_;
  bool ended_ = false; // the `end` record of a stream was read
  llvm::SmallVector<Operand, 16> operands_;
  unsigned values_ = 0; // lists and dictionaries around the operand or attribute at hand
  RawCache op_cache_, shape_cache_, type_cache_, attrs_cache_, literal_cache_, scale_cache_;
};

} // namespace spmd::ir
