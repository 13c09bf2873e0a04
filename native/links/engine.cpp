#include "engine.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <stdexcept>
#include <thread>

namespace podium {
namespace {

constexpr uint32_t kBothWays = EPOLLIN | EPOLLOUT | EPOLLET;

void set_up(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
}

sockaddr_in place(const char* address, int port) {
  sockaddr_in found{};
  found.sin_family = AF_INET;
  found.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, address, &found.sin_addr) != 1)
    throw std::runtime_error(std::string(address) + " is no IPv4 address");
  return found;
}

}  // namespace

Engine& Engine::here() {
  static Engine* engine = new Engine;  // never destroyed: its thread runs until the process ends
  return *engine;
}

Engine::Engine() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  watch(wake_, EPOLLIN);
}

int Engine::listen(const char* address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  sockaddr_in own = place(address, 0);
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  socklen_t size = sizeof own;
  if (bind(listener_, reinterpret_cast<sockaddr*>(&own), size) || ::listen(listener_, 4096) ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size))
    return -1;
  watch(listener_, EPOLLIN);
  std::thread([this] { run(); }).detach();
  return ntohs(own.sin_port);
}

void Engine::know(const unsigned char* secret, std::vector<Peer> peers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::memcpy(secret_.data(), secret, secret_.size());
  peers_ = std::move(peers);
}

void Engine::add(int plan, int device, Plan tables) {
  const std::lock_guard<std::mutex> lock(mutex_);
  plans_.emplace(std::make_pair(plan, device), std::move(tables));
}

void Engine::start(int site, int plan, int device, const Order& order, const float* given) {
  std::unique_ptr<Job> job;
  Channel* found;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    found = &channel(site, plan, device, order.pieces);
    if (!found->spare.empty()) {  // of the same site, so of the same size
      job = std::move(found->spare.front());
      found->spare.pop_front();
    }
  }
  if (!job) job = std::make_unique<Job>(found->plan, order);
  job->take(given);
  const std::lock_guard<std::mutex> lock(mutex_);
  found->started.push_back(std::move(job));
  const uint64_t one = 1;
  if (write(wake_, &one, sizeof one) < 0) throw std::runtime_error("podium: the thread of sums cannot be woken");
}

bool Engine::done(int site, int device, float* out, std::function<void(const std::string&)> then) {
  std::unique_lock<std::mutex> lock(mutex_);
  Channel& of_site = *channels_.at({site, device});
  if (!of_site.waiters.empty() || of_site.finished.empty()) {
    of_site.waiters.push_back({out, std::move(then)});
    hand_over(of_site);
    return false;
  }
  std::unique_ptr<Job> job = std::move(of_site.finished.front());
  of_site.finished.pop_front();
  lock.unlock();
  job->give(out);
  lock.lock();
  of_site.spare.push_back(std::move(job));
  return true;
}

// Gives finished sums to those who wait for them. What XLA does then, and it may be the rest of a program, is not for
// the thread that carries the others' sums.
void Engine::hand_over(Channel& channel) {
  while (!channel.waiters.empty() && (!channel.finished.empty() || !channel.error.empty())) {
    Waiter waiter = std::move(channel.waiters.front());
    channel.waiters.pop_front();
    if (channel.finished.empty()) {
      std::thread([waiter, error = channel.error] { waiter.then(error); }).detach();
      continue;
    }
    Job* job = channel.finished.front().release();
    channel.finished.pop_front();
    std::thread([this, waiter, job, &channel] {
      job->give(waiter.out);
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        channel.spare.emplace_back(job);
      }
      waiter.then("");
    }).detach();
  }
}

void Engine::close_all() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [socket, _] : owners_) close(socket);
  for (const auto& [_, socket] : waiting_) close(socket);
  for (auto& [_, channel] : channels_) {
    channel->error = "its connections were closed";
    hand_over(*channel);
    channel->started.clear(), channel->spare.clear();
    closed_.push_back(std::move(channel));
  }
  owners_.clear(), waiting_.clear(), channels_.clear();
}

// The channel of a site, with sockets to its peers. Of two devices the lower calls.
Channel& Engine::channel(int site, int plan, int device, int pieces) {
  auto& found = channels_[{site, device}];
  if (found) return *found;
  const Plan& tables = plans_.at({plan, device});
  found = std::make_unique<Channel>(tables, tables.routes * pieces);
  for (int strand = 0; strand < found->strands; ++strand) {
    std::set<int> others;
    for (const Move& move : tables.scatter[strand / pieces]) others.insert({move.to, move.from});
    others.erase(-1);
    for (const int other : others) {
      if (device < other) {
        const int made = dial(site, strand, device, other);
        join(*found, strand, other, made);
        watch(made, kBothWays);
      } else if (const auto called = waiting_.find({site, device, strand, other}); called != waiting_.end()) {
        join(*found, strand, other, called->second);
        waiting_.erase(called);
      }
    }
  }
  return *found;
}

int Engine::dial(int site, int strand, int from, int to) {
  const sockaddr_in there = place(peers_.at(to).address.c_str(), peers_.at(to).port);
  const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Hello hello{};
  std::memcpy(hello.secret, secret_.data(), secret_.size());
  hello.site = site, hello.strand = strand, hello.from = from, hello.to = to;
  if (made < 0 || connect(made, reinterpret_cast<const sockaddr*>(&there), sizeof there) ||
      ::send(made, &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
    throw std::runtime_error("podium: device " + std::to_string(to) + " at " + peers_.at(to).address +
                             " is not reached: " + std::strerror(errno));
  set_up(made);
  return made;
}

void Engine::watch(int socket, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = socket;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event);
}

void Engine::join(Channel& channel, int strand, int peer, int socket) {
  channel.sockets[{strand, peer}] = socket;
  owners_[socket] = {&channel, strand};
}

void Engine::run() {
  std::array<epoll_event, 256> events;
  while (true) {
    const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (int k = 0; k < count; ++k) {
      const int socket = events[k].data.fd;
      if (socket == wake_) {
        uint64_t times;
        if (read(wake_, &times, sizeof times) > 0)
          for (auto& [_, channel] : channels_) serve(*channel);
      } else if (socket == listener_) {
        answer();
      } else if (const auto caller = callers_.find(socket); caller != callers_.end()) {
        hear(socket, caller->second);
      } else if (const auto owner = owners_.find(socket); owner != owners_.end()) {
        serve(*owner->second.first, owner->second.second);
      }
    }
  }
}

void Engine::answer() {
  int made;
  while ((made = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
    set_up(made);
    callers_[made];
    watch(made, kBothWays);
  }
}

// Reads who calls. A stranger is hung up on.
void Engine::hear(int socket, Caller& caller) {
  auto* at = reinterpret_cast<char*>(&caller.hello) + caller.got;
  const auto got = recv(socket, at, sizeof caller.hello - caller.got, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got > 0 && (caller.got += got) < sizeof caller.hello) return;
  const Hello hello = caller.hello;
  callers_.erase(socket);
  if (got <= 0 || std::memcmp(hello.secret, secret_.data(), secret_.size()) != 0) {
    close(socket);
    return;
  }
  const auto channel = channels_.find({hello.site, hello.to});
  if (channel == channels_.end()) {
    waiting_[{hello.site, hello.to, hello.strand, hello.from}] = socket;
    return;
  }
  join(*channel->second, hello.strand, hello.from, socket);
  serve(*channel->second, hello.strand);
}

// Carries on with the oldest sum of a channel, along one strand or all of them.
void Engine::serve(Channel& channel, int strand) {
  while (!channel.started.empty() && channel.error.empty()) {
    Job& job = *channel.started.front();
    for (int k = strand < 0 ? 0 : strand; k < (strand < 0 ? channel.strands : strand + 1); ++k) job.advance(channel, k);
    if (!job.error.empty()) {
      channel.error = job.error;
      for (const auto& [_, socket] : channel.sockets) shutdown(socket, SHUT_RDWR);  // the others should know at once
    } else if (!job.finished()) {
      return;
    } else {
      channel.finished.push_back(std::move(channel.started.front()));
      channel.started.pop_front();
      strand = -1;
    }
    hand_over(channel);
  }
}

}  // namespace podium
