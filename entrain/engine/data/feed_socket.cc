#include "entrain/engine/data/feed_socket.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "entrain/core/base/errors.h"
#include "entrain/core/base/files.h"
#include "entrain/core/base/text.h"

#include "entrain/engine/data/feed_messages.h"

namespace entrain::engine {
namespace {

constexpr std::size_t kKeyCharacters = 40;
constexpr std::size_t kKeyBytes = 32;
constexpr std::string_view kKeyTitle = "# entrain feed key";
constexpr const char* kAddressForms = "HOST:PORT, :PORT to listen, or ipc:///PATH";

std::string public_key(const std::string& secret, const std::string& where) {
  std::array<char, kKeyCharacters + 1> key{};
  if (secret.size() != kKeyCharacters || zmq_curve_public(key.data(), secret.c_str()) != 0) {
    throw InvalidInput(
        concat(where, ": no key of a feed; make one with `entrain feed --new-key FILE`"));
  }
  return key.data();
}

void set_common(zmq::socket_t& socket, const FeedAddress& address) {
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::sndhwm, 0);  // the credit bounds what is under way
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.set(zmq::sockopt::ipv6, address.ipv6);
}

// Whether a process listens at an address of kind ipc.
bool is_served(const FeedAddress& address) {
  constexpr std::string_view kIpc = "ipc://";
  sockaddr_un name{};
  const std::string path =
      address.endpoint.starts_with(kIpc) ? address.endpoint.substr(kIpc.size()) : "";
  if (path.empty() || path.size() >= sizeof(name.sun_path)) {
    return false;
  }
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, path.size());
  const int probe = ::socket(AF_UNIX, SOCK_STREAM, 0);
  const bool served = ::connect(probe, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
  ::close(probe);
  return served;
}

bool is_local_host(std::string_view host) {
  return host == "localhost" || host == "[::1]" || host.substr(0, 4) == "127.";
}

}  // namespace

FeedKey new_feed_key() {
  FeedKey key;
  for (auto [secret, open] : {std::pair(&key.feed_secret, &key.feed_public),
                              std::pair(&key.rank_secret, &key.rank_public)}) {
    std::array<char, kKeyCharacters + 1> made_public{};
    std::array<char, kKeyCharacters + 1> made_secret{};
    if (zmq_curve_keypair(made_public.data(), made_secret.data()) != 0) {
      throw SystemFailure("this ZeroMQ has no CURVE: it cannot make keys");
    }
    *secret = made_secret.data();
    *open = made_public.data();
  }
  return key;
}

std::string text_of(const FeedKey& key) {
  return concat(kKeyTitle, "\nfeed ", key.feed_secret, "\nrank ", key.rank_secret, "\n");
}

FeedKey read_feed_key(const std::filesystem::path& path) {
  const std::string where = concat("feed key '", path.string(), "'");
  std::istringstream lines(read_file(path));
  using std::filesystem::perms;
  const perms others = perms::group_all | perms::others_all;
  if ((std::filesystem::status(path).permissions() & others) != perms::none) {
    throw InvalidInput(
        concat(where, " may be read by others than its owner: `chmod 600 ", path.string(), "`"));
  }
  FeedKey key;
  std::string line;
  while (std::getline(lines, line)) {
    const std::string value = line.size() > 5 ? line.substr(5) : "";
    if (line.starts_with("feed ")) {
      key.feed_secret = value;
    } else if (line.starts_with("rank ")) {
      key.rank_secret = value;
    }
  }
  key.feed_public = public_key(key.feed_secret, where);
  key.rank_public = public_key(key.rank_secret, where);
  return key;
}

FeedAddress read_feed_address(const std::string& text, const std::string& where, bool listens) {
  FeedAddress address;
  address.text = text;
  if (text.starts_with("ipc://") && text.size() > 6) {
    address.endpoint = text;
    address.local = true;
    return address;
  }
  const std::size_t colon = text.rfind(':');
  const std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
  int port = -1;
  if (colon != std::string::npos) {
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + colon + 1, end, port);
    port = read.ec == std::errc() && read.ptr == end ? port : -1;
  }
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  const bool sound = host.find_first_of("/ \t") == std::string::npos &&
                     (bracketed || host.find(':') == std::string::npos);
  if (port < (listens ? 0 : 1) || port > 65535 || !sound || (host.empty() && !listens)) {
    throw InvalidInput(concat(where, ": '", text, "' is no address of a feed; ", kAddressForms));
  }
  address.ipv6 = bracketed;
  address.local = is_local_host(host);
  address.endpoint = concat("tcp://", host.empty() ? "*" : host, ":", port);
  return address;
}

zmq::socket_t socket_to_feed(zmq::context_t& context,
                             const FeedAddress& address,
                             const FeedKey* key) {
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  set_common(socket, address);
  socket.set(zmq::sockopt::immediate, true);  // nothing is queued for a feed that is not there
  socket.set(zmq::sockopt::maxmsgsize, kMostPieceBytes);
  if (key != nullptr) {
    socket.set(zmq::sockopt::curve_serverkey, key->feed_public);
    socket.set(zmq::sockopt::curve_publickey, key->rank_public);
    socket.set(zmq::sockopt::curve_secretkey, key->rank_secret);
  }
  return socket;
}

zmq::socket_t listen_for_ranks(zmq::context_t& context,
                               const FeedAddress& address,
                               const FeedKey* key) {
  zmq::socket_t socket(context, zmq::socket_type::router);
  set_common(socket, address);
  socket.set(zmq::sockopt::maxmsgsize, kMostHelloBytes);
  if (key != nullptr) {
    socket.set(zmq::sockopt::curve_server, true);
    socket.set(zmq::sockopt::curve_secretkey, key->feed_secret);
    socket.set(zmq::sockopt::zap_domain, "entrain");
  }
  if (is_served(address)) {  // ZeroMQ would take its socket away
    throw SystemFailure(concat("cannot listen at '", address.text, "': Address already in use"));
  }
  try {
    socket.bind(address.endpoint);
  } catch (const zmq::error_t& error) {
    throw SystemFailure(concat("cannot listen at '", address.text, "': ", error.what()));
  }
  return socket;
}

AuthenticatedRanks::AuthenticatedRanks(zmq::context_t& context, const FeedKey& key)
    : socket_(context, zmq::socket_type::rep), allowed_(kKeyBytes, '\0') {
  zmq_z85_decode(reinterpret_cast<std::uint8_t*>(allowed_.data()), key.rank_public.c_str());
  socket_.set(zmq::sockopt::linger, 0);
  socket_.bind("inproc://zeromq.zap.01");
}

void AuthenticatedRanks::answer() {
  // Version, request, domain, address, identity, mechanism, credentials.
  std::vector<std::string> parts;
  zmq::message_t part;
  do {
    if (!socket_.recv(part, zmq::recv_flags::none).has_value()) {
      return;
    }
    parts.push_back(part.to_string());
  } while (part.more());
  constexpr std::size_t kMechanism = 5;
  const bool allowed =
      parts.size() == 7 && parts[kMechanism] == "CURVE" && parts[kMechanism + 1] == allowed_;
  const std::string request = parts.size() > 1 ? parts[1] : "";
  const std::array<std::string, 6> reply = {
      "1.0", request, allowed ? "200" : "400", allowed ? "" : "another key", "", ""};
  for (std::size_t i = 0; i < reply.size(); ++i) {
    socket_.send(zmq::buffer(reply[i]),
                 i + 1 < reply.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
}

void wait_for_messages(std::vector<zmq::pollitem_t>& items, std::chrono::milliseconds time) {
  try {
    zmq::poll(items, time);
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) {
      throw;
    }
    for (zmq::pollitem_t& item : items) {
      item.revents = 0;
    }
  }
}

zmq::message_t frame_of(std::string bytes) {
  auto owned = std::make_unique<std::string>(std::move(bytes));
  zmq::message_t frame(
      owned->data(),
      owned->size(),
      [](void* /*data*/, void* hint) { delete static_cast<std::string*>(hint); },
      owned.get());
  owned.release();
  return frame;
}

}  // namespace entrain::engine
