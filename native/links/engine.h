// The thread that carries sums between processes, and its sockets. Each call site of a program has a channel on each
// device, with sockets of its own: a message never waits behind another sum's. Sockets are made when a channel is first
// used. Without deques, hash tables, counted pointers and copied vectors: what today's compilers make of them asks for
// C and C++ libraries of 2020 and newer, and a wheel serves older systems.
#pragma once
#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "job.h"

namespace podium {

struct Peer {
  std::string address;
  int port;
};

// How a socket introduces itself.
struct Hello {
  unsigned char secret[16];
  int32_t site, strand, from, to;
};

class Channel;

class Engine {
 public:
  static Engine& here();

  int listen(const char* address);                                  // the port, or −1
  void know(const unsigned char* secret, std::vector<Peer> peers);  // by device
  void add(int plan, int device, Plan tables);

  void start(int site, int plan, int device, const Order& order, const float* given);
  // True if a sum was there; else `then` is called once it is, on a thread of its own, with what went wrong or "".
  bool done(int site, int device, float* out, std::function<void(const std::string&)> then);
  void close_all();  // a sum that is under way ends with an error

 private:
  struct Caller {
    Hello hello;
    size_t got = 0;
  };
  using Place = std::tuple<int, int, int, int>;  // site, device, strand, peer

  Engine();
  Channel& channel(int site, int plan, int device, int pieces);
  int dial(int site, int strand, int from, int to);
  void run();
  void answer();
  void hear(int socket, Caller& caller);
  void watch(int socket, uint32_t events);
  void join(Channel& channel, int strand, int peer, int socket);
  void serve(Channel& channel, int strand = -1);
  void hand_over(Channel& channel);

  std::mutex mutex_;
  int epoll_, wake_, listener_ = -1;
  std::array<unsigned char, 16> secret_{};
  std::vector<Peer> peers_;
  std::map<std::pair<int, int>, Plan> plans_;                         // by number and device
  std::map<std::pair<int, int>, std::unique_ptr<Channel>> channels_;  // by site and device
  std::vector<std::unique_ptr<Channel>> closed_;                      // a thread may still give one its job back
  std::map<int, Caller> callers_;                                     // by socket
  std::map<int, std::pair<Channel*, int>> owners_;                    // channel and strand, by socket
  std::map<Place, int> waiting_;                                      // sockets whose channel is not there yet
};

// Who waits for a sum, and where it goes.
struct Waiter {
  float* out;
  std::function<void(const std::string&)> then;
};

// The sums of one call site on one device, in the order in which they were started.
class Channel : public Sockets {
 public:
  Channel(const Plan& plan, int strands) : plan(plan), strands(strands) {}
  int to(int strand, int32_t peer) const override {
    const auto found = sockets.find({strand, peer});
    return found == sockets.end() ? -1 : found->second;
  }

  const Plan& plan;
  const int strands;
  std::map<std::pair<int, int>, int> sockets;  // by strand and peer
  std::list<std::unique_ptr<Job>> started, finished, spare;
  std::list<Waiter> waiters;
  std::string error;
};

}  // namespace podium
