#include "daemon/metrics_endpoint.h"

#include <boost/algorithm/string/case_conv.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

namespace dtrain::daemon {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;

constexpr size_t kReadersMax = 32;
constexpr uint32_t kRequestBytesMax = 8192;
constexpr auto kAnswerWithin = std::chrono::seconds(30);
// Prometheus asks each minute, mostly, by the connection that it has.
constexpr auto kNextWithin = std::chrono::minutes(5);
constexpr auto kListenAgain = std::chrono::seconds(5);

using Request = http::request<http::empty_body>;
using Response = http::response<http::string_body>;

Response plain(const Request& request, http::status status, std::string text) {
  Response response(status, request.version());
  response.set(http::field::content_type, "text/plain; charset=utf-8");
  response.body() = std::move(text);
  return response;
}

Response answer(const Request& request, const MetricsEndpoint::Text& text) {
  auto target = request.target();
  if (target.starts_with("http://")) {   // as to a proxy
    const auto slash = target.find('/', std::string_view("http://").size());
    target = slash == target.npos ? "/" : target.substr(slash);
  }
  const auto path = target.substr(0, target.find('?'));
  if (request.method() != http::verb::get && request.method() != http::verb::head) {
    Response response = plain(request, http::status::method_not_allowed, "GET /metrics\n");
    response.set(http::field::allow, "GET, HEAD");
    return response;
  }
  if (path == "/") return plain(request, http::status::ok, "dtrain: /metrics\n");
  if (path != "/metrics") return plain(request, http::status::not_found, "dtrain: /metrics\n");
  const std::string accept = boost::algorithm::to_lower_copy(std::string(request[http::field::accept]));
  const bool is_open = accept.find("application/openmetrics-text") != accept.npos;
  Response response(http::status::ok, request.version());
  response.set(http::field::content_type, is_open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                                  : "text/plain; version=0.0.4; charset=utf-8");
  response.body() = text(is_open ? MetricsFormat::OpenMetrics : MetricsFormat::Prometheus);
  return response;
}

}  // namespace

class MetricsEndpoint::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(MetricsEndpoint& endpoint, tcp::socket socket) : endpoint_(&endpoint), stream_(std::move(socket)) {}
  ~Session() {
    if (endpoint_ != nullptr) endpoint_->sessions_.remove(this);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // `within`: so long the whole of the next request may take to come.
  void read(std::chrono::seconds within) {
    parser_.emplace();
    parser_->header_limit(kRequestBytesMax);
    parser_->body_limit(0);
    stream_.expires_after(within);
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code error, size_t) { self->on_read(error); });
  }
  void close() {
    endpoint_ = nullptr;
    stream_.close();
  }

 private:
  void on_read(beast::error_code error) {
    if (endpoint_ == nullptr || error == http::error::end_of_stream) return;
    endpoint_->sessions_.remove(this);
    endpoint_->sessions_.push_back(this);
    if (error && error.category() != http::make_error_code(http::error::end_of_stream).category()) return;   // it has gone
    if (error) {
      response_ = Response(http::status::bad_request, 11);
      response_.keep_alive(false);
      response_.prepare_payload();
    } else {
      const Request request = parser_->release();
      response_ = answer(request, endpoint_->text_);
      response_.keep_alive(request.keep_alive());
      response_.prepare_payload();
      if (request.method() == http::verb::head) response_.body().clear();   // how long it is stays said
    }
    stream_.expires_after(kAnswerWithin);
    http::async_write(stream_, response_, [self = shared_from_this()](beast::error_code failed, size_t) { self->on_written(failed); });
  }
  void on_written(beast::error_code error) {
    if (error || endpoint_ == nullptr || !response_.keep_alive()) return;
    read(kNextWithin);
  }

  MetricsEndpoint* endpoint_;   // null: closed
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{kRequestBytesMax * 2};
  std::optional<http::request_parser<http::empty_body>> parser_;
  Response response_;
};

MetricsEndpoint::MetricsEndpoint(asio::io_context& loop, const Endpoint& at, Text text)
    : loop_(loop),
      wanted_(at),
      text_(std::move(text)),
      acceptor_(loop, [this](tcp::socket socket) { take(std::move(socket)); }),
      retry_(loop) {
  listen();
}

MetricsEndpoint::~MetricsEndpoint() { close(); }

void MetricsEndpoint::listen() {
  boost::system::error_code error;
  const auto address = asio::ip::make_address(wanted_.host, error);
  tcp::acceptor& socket = acceptor_.socket();
  const tcp::endpoint at(address, static_cast<uint16_t>(wanted_.port));
  if (!error) socket.open(at.protocol(), error);
  if (!error) socket.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) socket.bind(at, error);
  if (!error) socket.listen(asio::socket_base::max_listen_connections, error);
  if (!error) {
    trouble_.clear();
    listens_ = {wanted_.host, socket.local_endpoint(error).port()};
    return acceptor_.accept();
  }
  boost::system::error_code ignored;
  socket.close(ignored);
  std::string why = "can't offer metrics on " + to_string(wanted_) + ": " + error.message();
  if (why != trouble_) std::fprintf(stderr, "%s; trying again\n", why.c_str());
  trouble_ = std::move(why);
  retry_.expires_after(kListenAgain);
  retry_.async_wait([this](boost::system::error_code stopped) {
    if (!stopped) listen();
  });
}

void MetricsEndpoint::take(tcp::socket socket) {
  if (sessions_.size() == kReadersMax) {
    Session* const silent = sessions_.front();
    sessions_.pop_front();
    silent->close();
  }
  const auto session = std::make_shared<Session>(*this, std::move(socket));
  sessions_.push_back(session.get());
  session->read(kAnswerWithin);
}

void MetricsEndpoint::close() {
  retry_.cancel();
  acceptor_.close();
  for (Session* session : std::exchange(sessions_, {})) session->close();
}

}  // namespace dtrain::daemon
