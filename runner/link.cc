#include "runner/link.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>

#include "schema/fd.h"
#include "schema/dtrain.grpc.pb.h"
#include "schema/version.h"

namespace dtrain::runner {
namespace asio = boost::asio;
namespace {

constexpr size_t kWaitingMaxBytes = size_t{64} << 20;
constexpr size_t kBeforeFactsBytes = size_t{256} << 10;
constexpr int64_t kBackoffFirstMs = 20;
constexpr int kBackoffMaxMs = 1'000;
constexpr size_t kNamesPerFetch = 8'000;  // 32 bytes each, well below a message

// A daemon that is down is noticed by this alone, without the cost of a stream.
bool somebody_listens(const std::string& socket_path, std::string& reason) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof address.sun_path) {
    reason = "the socket's path is too long: " + socket_path;
    return false;
  }
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd && ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return true;
  if (errno == EAGAIN) return true;  // its queue is full: it is there
  reason = fmt::format("{}: {}", socket_path, std::strerror(errno));
  return false;
}

// A daemon whose host has gone without a word is noticed by these.
constexpr int kAskEveryMs = 20'000, kAnswerWithinMs = 20'000;
// Handshakes and all; so long the daemon waits, too. What goes into a void is sent again ever less often, so that
// sooner or later a new one is the sooner way.
constexpr int kConnectWithinMs = 10'000, kLocalConnectWithinMs = 10;

std::shared_ptr<grpc::ChannelCredentials> credentials_of(const AccessKey& key, grpc::ChannelArguments& arguments) {
  arguments.SetSslTargetNameOverride(kDaemonCertificateName);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kAskEveryMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kAnswerWithinMs);
  // Else it asks twice and never again until we have something to say.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = key.authority;
  options.pem_cert_chain = key.certificate;
  options.pem_private_key = key.secret;
  return grpc::SslCredentials(options);
}

std::shared_ptr<grpc::Channel> make_channel(const DaemonPlace& daemon) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetMaxSendMessageSize(kMessageBytesMax);
  // redial() has all the patience there is: the channel's own would only add to it.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 10);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  // By its name; it is what a connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, daemon.key ? kConnectWithinMs : kLocalConnectWithinMs);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (daemon.key) {
    const auto credentials = credentials_of(*daemon.key, arguments);
    return grpc::CreateCustomChannel(daemon.key->daemon, credentials, arguments);
  }
  return grpc::CreateCustomChannel("unix:" + daemon.socket, grpc::InsecureChannelCredentials(), arguments);
}

DaemonPlace without_scheme(DaemonPlace daemon) {
  if (daemon.socket.starts_with("unix:")) daemon.socket.erase(0, 5);
  return daemon;
}

Status status_from(const grpc::Status& status) {
  if (status.ok()) return ok();
  const bool lacks = status.error_code() == grpc::StatusCode::NOT_FOUND;
  return Error{lacks ? Code::NotFound : Code::Unavailable,
               "fetching the snapshot: " + status.error_message(), ""};
}

std::string reason_of(const grpc::Status& status, const std::optional<AccessKey>& key) {
  if (status.ok()) return "the daemon ended the stream";
  const std::string& text = status.error_message();
  if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) {
    return "it refuses: " + text + (status.error_details().empty() ? "" : "; " + status.error_details());   // which is the hint
  }
  const auto says = [&text](const char* words) { return text.find(words) != std::string::npos; };
  // gRPC's words for what it gave up.
  if (key && says("handshaker shutdown")) return key->daemon + " does not answer";
  if (key && says("Ssl handshake failed")) {
    return fmt::format("{} is not the daemon that this key is of, or has lost its keys since, or a clock is wrong by "
                       "decades: `dtrain hosts invite` there makes another ({})", key->daemon, text);
  }
  return text;
}

}  // namespace

struct Link::Channel {
  explicit Channel(const DaemonPlace& daemon)
      : channel(make_channel(daemon)), stub(pb::Runner::NewStub(channel)) {}

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<pb::Runner::Stub> stub;
  // The only data our threads share: the calls in progress, so that close() can end them.
  std::mutex mutex;
  std::set<grpc::ClientContext*> calls;
  bool closed = false;
};

// One stream from StartCall to OnDone. gRPC holds it through self_ until then; the loop holds it
// for as long as it is the current one. The hold (AddHold) is what lets the loop start operations.
class Link::Stream : public grpc::ClientBidiReactor<pb::FromRunner, pb::ToRunner>,
                     public std::enable_shared_from_this<Link::Stream> {
 public:
  Stream(Link& owner, asio::io_context& loop) : owner_(&owner), key_(owner.daemon_.key), loop_(loop) {}

  void start(pb::Runner::Stub& stub) {
    self_ = shared_from_this();
    stub.async()->Connect(&context_, this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  // The link has no more interest: no callback from here on.
  void drop() {
    owner_ = nullptr;
    context_.TryCancel();
  }

  void send(pb::FromRunner message) {
    if (ended_) return;
    const size_t bytes = message.ByteSizeLong();
    waiting_bytes_ += bytes;
    const bool bulk = message.has_log() || message.has_usage();
    if (bulk) bulk_bytes_ += bytes;
    (bulk ? bulk_ : facts_).push_back({sent_++, std::move(message)});
    if (waiting_bytes_ > kWaitingMaxBytes) {
      fmt::print(stderr, "the daemon reads too slowly; starting a new stream\n");
      ended_ = true;
      context_.TryCancel();
      return;
    }
    write_next();
  }

 private:
  // An exit comes after what was printed before it, which is how people read it, but overtakes much of it: it is not
  // news after 16 MiB of lines. Nothing depends on their order, because Released waits for the acknowledgement of all output.
  bool facts_are_next() const {
    if (facts_.empty() || bulk_.empty()) return !facts_.empty();
    return facts_.front().number < bulk_.front().number || bulk_bytes_ > kBeforeFactsBytes;
  }

  void write_next() {
    if (writing_ || ended_) return;
    const bool fact = facts_are_next();
    auto& queue = fact ? facts_ : bulk_;
    if (queue.empty()) return;
    outgoing_ = std::move(queue.front().message);
    queue.pop_front();
    const size_t bytes = outgoing_.ByteSizeLong();
    waiting_bytes_ -= bytes;
    if (!fact) bulk_bytes_ -= bytes;
    writing_ = true;
    StartWrite(&outgoing_);
  }

  void OnReadDone(bool good) override {
    asio::post(loop_, [self = shared_from_this(), good] {
      if (!good) return self->end();
      if (self->owner_ != nullptr) self->owner_->on_message(self->incoming_);
      self->StartRead(&self->incoming_);
    });
  }

  void OnWriteDone(bool good) override {
    asio::post(loop_, [self = shared_from_this(), good] {
      self->writing_ = false;
      if (good) self->write_next();
    });
  }

  void OnDone(const grpc::Status& status) override {
    const std::string reason = reason_of(status, key_);
    asio::post(loop_, [self = std::move(self_), reason] {
      if (self->owner_ != nullptr) self->owner_->on_stream_end(reason);
    });
  }

  void end() {
    ended_ = true;
    RemoveHold();
  }

  Link* owner_;
  const std::optional<AccessKey> key_;
  asio::io_context& loop_;
  grpc::ClientContext context_;
  std::shared_ptr<Stream> self_;
  pb::ToRunner incoming_;
  pb::FromRunner outgoing_;
  struct Waiting {
    uint64_t number;   // in the order in which they were sent
    pb::FromRunner message;
  };
  uint64_t sent_ = 0;
  std::deque<Waiting> facts_;
  std::deque<Waiting> bulk_;
  size_t waiting_bytes_ = 0;
  size_t bulk_bytes_ = 0;   // of them
  bool writing_ = false;
  bool ended_ = false;
};

Link::Link(asio::io_context& loop, DaemonPlace daemon)
    : loop_(loop), daemon_(without_scheme(std::move(daemon))), channel_(std::make_unique<Channel>(daemon_)), timer_(loop) {}

Link::~Link() {
  close();
}

void Link::open(Callbacks callbacks) {
  callbacks_ = std::move(callbacks);
  dial();
}

void Link::close() {
  closed_ = true;
  timer_.cancel();
  {
    const std::lock_guard lock(channel_->mutex);
    channel_->closed = true;
    for (grpc::ClientContext* call : channel_->calls) call->TryCancel();
  }
  if (stream_) stream_->drop();
  stream_.reset();
}

void Link::dial() {
  if (closed_) return;
  std::string reason;
  if (!daemon_.key && !somebody_listens(daemon_.socket, reason)) return redial(reason);
  // gRPC's own wait ends at a time of day: somebody may set the clock back meanwhile.
  grpc::experimental::ChannelResetConnectionBackoff(channel_->channel.get());
  stream_ = std::make_shared<Stream>(*this, loop_);
  stream_->start(*channel_->stub);
  callbacks_.connected();
}

void Link::redial(const std::string& reason) {
  if (closed_) return;
  if (reason != last_reason_) fmt::print(stderr, "no daemon: {}; dialling on\n", reason);
  last_reason_ = reason;
  backoff_ms_ = std::clamp<int64_t>(backoff_ms_ * 2, kBackoffFirstMs, kBackoffMaxMs);
  timer_.expires_after(std::chrono::milliseconds(backoff_ms_));
  timer_.async_wait([this](boost::system::error_code error) {
    if (!error) dial();
  });
}

// Somebody is there. Who waited longer from one outage to the next would come late when a daemon is
// replaced.
void Link::on_message(const pb::ToRunner& message) {
  backoff_ms_ = 0;
  callbacks_.message(message);
}

void Link::on_stream_end(const std::string& reason) {
  stream_.reset();
  callbacks_.disconnected();
  redial(reason);
}

void Link::send(pb::FromRunner message) {
  if (stream_) stream_->send(std::move(message));
}

Link::Call::Call(Link& link) : link_(link), context_(std::make_unique<grpc::ClientContext>()) {
  const std::lock_guard lock(link.channel_->mutex);
  link.channel_->calls.insert(context_.get());
  if (link.channel_->closed) context_->TryCancel();   // it ends as soon as it is begun
}

Link::Call::~Call() {
  const std::lock_guard lock(link_.channel_->mutex);
  link_.channel_->calls.erase(context_.get());
}

std::shared_ptr<grpc::Channel> Link::channel() const { return channel_->channel; }

Status Link::fetch(const std::vector<std::string>& sha256,
                   const std::function<Status(const pb::BlobPart&)>& part) {
  for (size_t at = 0; at < sha256.size(); at += kNamesPerFetch) {
    pb::FetchRequest request;
    for (size_t i = at; i < std::min(sha256.size(), at + kNamesPerFetch); ++i)
      request.add_sha256(sha256[i]);
    Call call(*this);
    auto reader = channel_->stub->Fetch(&call.context(), request);
    pb::BlobPart message;
    Status taken = ok();
    while (taken.ok() && reader->Read(&message)) taken = part(message);
    if (!taken.ok() && taken.error().code == Code::DataLoss) {
      // The daemon sees it at the blob's end, and forgets it, so that it is sent again.
      const std::string damaged = message.sha256();
      while (reader->Read(&message) && message.sha256() == damaged) {
      }
    }
    if (!taken.ok()) call.context().TryCancel();
    const grpc::Status status = reader->Finish();
    TRY(std::move(taken));
    TRY(status_from(status));
  }
  return ok();
}

}  // namespace dtrain::runner
