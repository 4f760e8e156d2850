// One editor at the other end: what it has open, what it asked and was not yet answered.
#pragma once

#include "checker/cli/lsp/program_file.h"
#include "checker/cli/lsp/recording.h"

#include <deque>
#include <functional>
#include <map>

namespace spmd::checker::lsp {

class Session {
public:
  using Send = std::function<void(const std::string &message)>;
  Session(const Options &options, Send send);

  // Takes one message in. What is asked waits for its turn, so that it can be cancelled.
  void take(llvm::StringRef message);
  size_t waiting() const { return queue_.size(); }
  bool idle() const { return queue_.empty() && to_publish_.empty(); }
  // Answers what was asked first, or tells what is wrong with a file.
  void work();
  bool ended() const { return ended_; }
  // Whether the editor said that it would leave.
  bool ended_well() const { return shut_down_; }

private:
  struct Document {
    std::string uri, path, text;
    bool python = false;
    std::unique_ptr<ProgramFile> program;
    std::unique_ptr<Source> source;
    std::optional<std::string> recorded; // the text that was recorded, once it was seen
  };
  struct Method {
    std::string_view name;
    Answer (Session::*fn)(const Json &params);
    bool notification = false;
  };
  static const Method kMethods[];

  Answer initialize(const Json &params);
  Answer initialized(const Json &params);
  Answer shut_down(const Json &params);
  Answer leave(const Json &params);
  Answer opened(const Json &params);
  Answer changed(const Json &params);
  Answer saved(const Json &params);
  Answer closed(const Json &params);
  Answer hover(const Json &params);
  Answer definition(const Json &params);
  Answer actions(const Json &params);
  Answer hints(const Json &params);

  // Null, with the failure, if the message names no open document.
  Document *document_of(const Json &params, Failure &failure);
  template <class Read, class Work>
  Answer ask(const Json &params, const char *place, Read read, Work work);
  ProgramFile &program_of(Document &document);
  const Source &source_of(Document &document);
  bool is_recorded(const Document &document) const;
  FindSource find_source() const;
  void forget_sources();
  void refresh_recording();
  void publish(const std::string &uri);
  void answer(const Json &id, Answer answer);
  void notify(std::string_view method, Json params);
  void cancel(const Json &id);

  Options options_;
  Send send_;
  std::string root_ = ".";
  bool initialized_ = false, shut_down_ = false, ended_ = false, watches_ = false;
  std::deque<Json> queue_;
  std::map<std::string, Document> documents_; // by URI
  std::set<std::string> to_publish_, published_;
  Recording recording_;
};

} // namespace spmd::checker::lsp
