// The reader of the text form, shared by the files that implement it: read.cc walks the
// program and holds the tokens, _tables the declarations of meshes and other tables, _types types
// and expressions, _attrs operands and attributes, _body statements and functions. A function that
// returns false has reported a malformed statement; what is only wrong in meaning is reported, and
// reading goes on.
#pragma once

#include "ir/claims.h"
#include "ir/input/input.h"
#include "ir/text/lexer.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace spmd::ir {

class TextReader {
public:
  TextReader(llvm::StringRef bytes, const ReadOptions &options, ReadResult &result);
  void read();

private:
  // A type as written, before it is known what it is the type of.
  struct WrittenType {
    TypeId type;
    ShapeId shape, global_shape;
    MeshId on; // none if not stated
  };
  // Claims wait until the mesh is known, which is named last.
  struct WrittenClaims {
    struct One {
      Token at;
      std::optional<KindWord> kind; // none: the axes shard dimension `dim`
      unsigned dim;
      AxisRefs axes;
    };
    Token first;
    llvm::SmallVector<One, 4> list;
    std::optional<ScaleId> scale;
    Token words_at = {};     // of what follows
    llvm::StringRef words{}; // the kinds in those of the program's dialect, as they stand
  };
  // A result or a parameter before `=` or `:`.
  struct WrittenValue {
    Token token;
    ValueName name;
    ValueId alias_of, grad_of;
    std::optional<Token> late_grad_of; // not defined yet; a declaration may say so
    Tristate requires_grad = Tristate::Unstated;
    WrittenType type;
    bool typed = false;
  };
  // What an op is written with, while it is read.
  struct Operation {
    Inst inst;
    llvm::SmallVector<Operand, 8> operands;
    llvm::SmallVector<Operand, 8> named; // name and operand by turns
    AttrDict attrs;
    llvm::SmallVector<StringId, 1> ignores;
    llvm::SmallVector<Expectation, 1> expectations;
    uint64_t origin = 0;
  };
  using Key = llvm::StringRef;
  struct Keyword;

  // Tokens.
  Token peek();
  Token peek_second();
  Token take();
  bool take_if(char punctuation);
  bool take_word(llvm::StringRef word);
  bool expect(char punctuation);
  bool open(char bracket); // from here on newlines are blanks
  bool open_value();       // false if too many are open; the caller counts values_ down
  bool close(char bracket);
  bool expect_end_of_statement();
  void skip_separators();
  void recover();
  bool starts_statement();

  // Errors.
  bool error(uint64_t offset, std::string_view name, std::string message);
  bool error(const Token &token, std::string_view name, std::string message);
  bool fail(std::string message);       // `trace-limit`, and nothing more is read
  bool expected(std::string_view what); // `trace-syntax` at the next token
  void unknown_key(const Token &token, std::string_view where,
                   llvm::ArrayRef<std::string_view> known);
  bool stopped() const { return stopped_; }

  // Lists: item() for each element between brackets, which may be none.
  template <class F> bool list(char open_bracket, char close_bracket, F &&item);
  // `{ key = ... }`: pair(token of the key, key) reads what follows `=`. Repeated keys are errors.
  // `bare_tells`: whether a key that is not quoted is another one than the same word in quotes.
  template <class F> bool dict(F &&pair, bool (*bare_tells)(llvm::StringRef key) = nullptr);

  // The first mesh of that name; none if there is none.
  MeshId mesh_named(llvm::StringRef name);

  // Names and numbers.
  std::optional<StringId> name(std::string_view what);
  std::optional<Token> any_name(std::string_view what);
  std::optional<std::string> string(std::string_view what);
  std::optional<std::string> unescaped(const Token &token);
  std::optional<std::string> word_or_string(std::string_view what);
  std::optional<int64_t> integer(std::string_view what, int64_t least, std::string_view error_name);
  std::optional<AttrValue> number();
  std::optional<bool> boolean();
  template <class E, size_t N>
  bool enumerator(const std::array<std::string_view, N> &words, std::string_view what, E &out);

  // Tables (read_tables.cc).
  bool read_trace();
  bool read_trace_key(const Token &token, Key key);
  bool read_extra(Key key);
  bool read_count(std::optional<int64_t> &out, std::string_view what, int64_t least,
                  std::string_view error_name);
  bool read_version();
  bool read_producer();
  bool read_missing();
  bool read_requires();
  bool read_file();
  FileId file_named(llvm::StringRef path);
  bool read_symbol();
  bool read_rule();
  bool read_suppress();
  bool read_suppress_key(Suppression &row, const Token &token, Key key);
  bool read_output();
  bool read_declaration(WrittenValue value, Role role, uint64_t origin);
  bool read_declaration_key(Param &param, const Token &token, Key key);
  bool read_sync(GradContract &grad);
  bool read_sync_axes(GradContract &grad);
  bool read_hints(GradContract &grad);
  std::optional<AxisRefsId> declared_axes();
  std::optional<std::string> finding();
  std::optional<std::string> dashed_name(std::string_view what);
  void check_counts();

  // Meshes and groups (read_meshes.cc).
  bool read_mesh();
  void add_mesh(Mesh mesh, const Token &token);
  bool read_within(Mesh &mesh);
  bool read_coordinate(Mesh &mesh, const Token &token, Key key);
  static int64_t rank_at(const Layout &layout, int64_t coordinate);
  bool read_axis(Mesh &mesh);
  bool read_axis_layout(Mesh &mesh, Axis &axis);
  void take_parent_axis(const Mesh &mesh, Axis &axis, const Token &token);
  bool read_atom(const Mesh &mesh, Layout &layout, bool needs_stride);
  bool at_axis_names();
  std::optional<int64_t> read_ranks(const Mesh &mesh, std::string_view what);
  void resolve_pieces(Mesh &mesh, const Token &token);
  bool read_group();
  bool read_group_axes(Group &group);
  bool read_group_ranks(Group &group);

  // Types and expressions (read_types.cc).
  bool at_shape();
  bool at_kind();
  bool at_type() {
    return at_shape() || at_kind() || peek().is_name("scale") || peek().is_name("on");
  }
  // `rank`: the number of dimensions where the type has no shape and another place states it.
  std::optional<WrittenType> type(MeshId mesh, std::optional<unsigned> rank = {});
  // A type, or `null` for one that says nothing.
  std::optional<ClaimId> claim(MeshId mesh, std::optional<unsigned> rank = {});
  std::optional<unsigned> rank_of(ShapeId shape) const;
  bool read_shape(WrittenType &type, WrittenClaims &claims);
  bool read_dtype(Shape &shape);
  bool read_dims(Shape &shape, WrittenClaims &claims);
  bool read_global_shape(WrittenType &type, const Shape &local);
  bool read_claim(WrittenClaims &claims);
  bool read_scale_and_mesh(WrittenType &type, WrittenClaims &claims);
  bool read_words(WrittenClaims &claims);
  bool cuts_evenly(const WrittenType &written) const;
  std::optional<std::string> add_words(ClaimBuilder &builder, const WrittenClaims &claims,
                                       MeshId mesh);
  TypeId finish_claims(const WrittenClaims &claims, MeshId mesh, std::optional<unsigned> rank);
  std::optional<KindWord> kind();
  bool read_kind_argument(KindWord &word);
  std::optional<AxisRef> axis_ref();
  std::optional<AxisRefs> axes();
  std::optional<AxisRefs> axes_after_at();
  std::optional<MeshId> mesh_name();
  // Whether the axes are there, seen from a mesh; what is not is reported at the token.
  bool check_axes(const Token &at, MeshId mesh, const AxisRefs &refs);
  std::optional<AxisSet> axis_set(MeshId mesh);
  // The tokens of an expression, joined; with `symbols`, each name must be a symbol.
  bool expression(std::string &text, bool symbols);
  bool expression_operand(std::string &text, bool symbols);
  bool at_operator();
  std::optional<Extent> extent();
  std::optional<ScaleId> scale();
  bool is_symbol(llvm::StringRef name);

  // Operands and attributes (read_attrs.cc).
  bool at_operand();
  bool read_operands(Operation &op);
  void add_named(Operation &op, Key key, Operand operand);
  std::optional<Operand> operand();
  std::optional<Operand> list_operand(bool mut);
  std::optional<AttrValue> literal();
  std::optional<AttrValue> symbolic();
  std::optional<ValueId> value_use();
  std::optional<ValueName> value_name(const Token &token);
  std::string nearest_value(llvm::StringRef name) const;
  bool read_attrs(Operation &op);
  void check_type_parts(const Operation &op, const Token &token);
  bool read_attr(Operation &op, const Token &token, Key key);
  bool read_op_key(Operation &op, Key key);
  bool read_ignore(Operation &op);
  std::optional<AttrValue> known_attr(const Operation &op, KeyForm form, Key key);
  std::optional<AttrValue> axes_attr();
  std::optional<AttrValue> word_attr(Key key);
  std::optional<AttrValue> kinds_attr();
  std::optional<unsigned> rank_in(const Operation &op, size_t operand) const;
  std::optional<AttrValue> claims_attr(const Operation &op, Key key);
  std::optional<AttrValue> claim_attr(MeshId mesh, std::optional<unsigned> rank);
  std::optional<AttrValue> plain_attr();
  std::optional<AttrValue> plain_list();
  std::optional<AttrValue> plain_dict();
  std::optional<AttrValue> name_attr();
  std::optional<AttrValue> parenthesised_attr();
  std::optional<AttrValue> kind_attr();
  bool at_list_of_values();
  bool at_expression();
  MeshId target_mesh(const Operation &op);
  bool skip_attr() { return plain_attr().has_value(); }

  // Statements (read_body.cc).
  bool read_statement(bool top_level);
  bool read_block(bool top_level);
  bool read_with();
  bool read_with_key(Context &context, const Token &token, Key key);
  bool read_local();
  bool read_nested(const Context &context);
  bool enter_block();
  bool read_results(llvm::SmallVectorImpl<WrittenValue> &results);
  bool read_value_words(WrittenValue &value);
  bool read_grad_of(WrittenValue &value);
  bool read_operation(llvm::SmallVectorImpl<WrittenValue> &results, uint64_t origin);
  bool read_op(llvm::SmallVectorImpl<WrittenValue> &results, Operation &op);
  std::optional<StringId> op_name();
  bool read_rng(Operation &op);
  bool read_where(LocId &loc);
  bool read_frames(FrameId &frame);
  bool read_frame(Frame &frame);
  bool read_place(Frame &frame);
  bool read_number(uint32_t &out, std::string_view what);
  bool read_expectation(uint32_t index);
  uint32_t add_operation(Operation &op, llvm::ArrayRef<WrittenValue> results);
  ValueId define(const WrittenValue &value);
  Value value_of(const WrittenValue &value) const;

  // Functions and what is read as one (read_functions.cc).
  bool read_function();
  bool read_parameter(Function &function);
  bool read_opaque(Function &function);
  bool read_body(Function &function, llvm::StringRef last_word);
  bool starts_attrs();
  void add_function(const Token &token, Function function);
  FunctionId use_function(const Token &token);
  StringId function_name(const Token &token);
  bool read_local_map(llvm::SmallVectorImpl<WrittenValue> &results, Operation &op);
  bool read_binding(Operation &op, llvm::SmallVectorImpl<WrittenValue> &params, AttrList &in_types);
  void take_result_types(llvm::SmallVectorImpl<WrittenValue> &results, Operation &op);
  void add_claims(Operation &op, llvm::StringRef key, AttrList list);
  StringId local_map_name();
  void check_functions();

  void check_late_gradients();
  ContextId context_id(); // of the context at hand
  bool need_mesh();       // reports once that there is none, and makes one
  void begin_body();
  MeshId mesh() const { return context_.mesh; }

  static const Keyword kKeywords[];

  llvm::StringRef bytes_;
  const ReadOptions &options_;
  ReadResult &result_;
  Program &program_;
  Builder builder_;
  Lexer lexer_;
  std::optional<Token> next_;
  uint64_t last_end_ = 0; // of the token taken last
  unsigned brackets_ = 0; // open ones, in which newlines are blanks
  unsigned nesting_ = 0;  // of blocks
  unsigned values_ = 0;   // lists and dictionaries around the operand or attribute at hand
  bool stopped_ = false;
  bool lost_values_ = false; // part of the program was skipped: undefined values say nothing
  bool begun_ = false;       // a declaration or statement was read: context 0 is fixed
  Context context_;
  llvm::DenseMap<uint32_t, Token> function_uses_; // first use, by FunctionId
  uint64_t local_maps_ = 0;
  llvm::DenseSet<uint32_t> made_up_;                      // values that were used and never defined
  std::vector<std::pair<ValueId, Token>> late_gradients_; // what they are the gradient of
  llvm::DenseMap<uint32_t, FileId> files_;                // by path
  // Names of what the program has so far, by StringId; those of meshes and symbols are entered when
  // one is looked for.
  llvm::DenseSet<uint32_t> groups_, rules_, extras_, symbols_;
  llvm::DenseMap<uint32_t, MeshId> meshes_;
  size_t symbols_entered_ = 0, meshes_entered_ = 0;
  llvm::DenseMap<uint32_t, llvm::SmallVector<Token, 4>> pieces_; // of the mesh at hand, by axis
};

template <class F> bool TextReader::list(char open_bracket, char close_bracket, F &&item) {
  if (!open(open_bracket))
    return false;
  if (!peek().is(close_bracket))
    do
      if (!item())
        return false;
    while (take_if(','));
  return close(close_bracket);
}

template <class F> bool TextReader::dict(F &&pair, bool (*bare_tells)(llvm::StringRef key)) {
  llvm::StringSet<> seen, bare;
  return list('{', '}', [&] {
    Token token = peek();
    std::optional<std::string> key = word_or_string("a key");
    if (!key || !expect('='))
      return false;
    bool is_bare = bare_tells && token.kind == TokenKind::Name && bare_tells(*key);
    if (!(is_bare ? bare : seen).insert(*key).second)
      error(token, "trace-key", "key `" + *key + "` is repeated");
    return pair(token, llvm::StringRef(*key));
  });
}

template <class E, size_t N>
bool TextReader::enumerator(const std::array<std::string_view, N> &words, std::string_view what,
                            E &out) {
  Token token = peek();
  std::optional<std::string> word = word_or_string(what);
  if (!word)
    return false;
  llvm::SmallVector<llvm::StringRef, 8> known;
  for (size_t i = 0; i < N; ++i) {
    if (words[i] == *word && !word->empty()) {
      out = static_cast<E>(i);
      return true;
    }
    known.push_back(words[i]);
  }
  error(token, "trace-key", "`" + *word + "` is no " + std::string(what) + nearest(*word, known));
  return true;
}

} // namespace spmd::ir
