// One sum under way on one device: its rows, and how far each route has come. A job knows sockets only as numbers to
// read from and write to, and never waits: `advance` does what can be done now.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace podium {

// What a device does in one tick of one route: rows go to one peer, and rows come from one. Peers are devices; −1 is
// nobody.
struct Move {
  int32_t to, send_start, send_rows;
  int32_t from, receive_start, receive_rows;
  bool adds;  // to what is there; the way back replaces it
};

// The tables of one device: `own[route * nodes + k]` is the place at which a route has the row of node k.
struct Plan {
  int32_t nodes, node, routes;
  std::vector<int32_t> shares;  // how much of each row goes along each route, beside the others
  std::vector<int32_t> own;
  std::vector<std::vector<Move>> scatter;  // by route
};

enum Mode : int32_t { kScatter = 1, kGather = 2, kSum = 3 };

struct Order {
  Mode mode;
  bool bf16;        // whether messages travel rounded
  int64_t columns;  // of a row
  int32_t pieces;   // into which each route's columns are cut; a strand is one of them
};

class Sockets {
 public:
  virtual int to(int strand, int32_t peer) const = 0;  // −1 while there is none
  virtual ~Sockets() = default;
};

class Job {
 public:
  Job(const Plan& plan, const Order& order);

  void take(const float* given);  // all rows, or for a gather the own one
  void give(float* out) const;    // what the order asked for
  void advance(const Sockets& sockets, int strand);
  bool finished() const { return unfinished_ == 0; }

  std::string error;

 private:
  struct Run {
    std::vector<Move> moves;
    std::vector<size_t> lasts;          // for each move the last of those that go to the same peer, one after the other
    size_t sending = 0, receiving = 0;  // moves; a move is sent when all before it have been received
    size_t sent = 0, got = 0;           // bytes of these
    std::vector<uint16_t> rounded;      // the message being sent, where it travels rounded
    unsigned char rest[4];              // bytes of a number that has come in part
    size_t rest_bytes = 0;
    size_t scatters = 0;  // moves before the way back
    bool ended = false;
  };

  bool carry_on(const Sockets& sockets, int strand);
  bool is_held(int strand) const;
  bool send(const Sockets& sockets, int strand);
  bool receive(const Sockets& sockets, int strand);
  int64_t read(int socket, Run& run, float* rows, size_t bytes);
  void round_own(int strand);
  float* row(int strand, int64_t place) { return table_.data() + first_[strand] * plan_.nodes + place * width(strand); }
  const float* row(int strand, int64_t place) const { return const_cast<Job*>(this)->row(strand, place); }
  int32_t place(int strand, int node) const { return plan_.own[strand / order_.pieces * plan_.nodes + node]; }
  int64_t width(int strand) const { return first_[strand + 1] - first_[strand]; }
  size_t unit() const { return order_.bf16 ? 2 : 4; }

  const Plan& plan_;
  const Order order_;
  std::vector<int64_t> first_;  // column of each strand
  std::vector<float> table_;    // [strand][place][column]
  std::vector<Run> runs_;
  int unfinished_;
};

}  // namespace podium
