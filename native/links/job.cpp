#include "job.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace podium {
namespace {

constexpr size_t kScratchBytes = 1 << 18;

uint16_t to_bf16(float value) {  // to the nearest, ties to even
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 64);  // not a number stays none
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float from_bf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// What one route sends and receives: forwards the sums, and backwards the same rows over the same links.
std::vector<Move> moves_of(const std::vector<Move>& scatter, Mode mode) {
  std::vector<Move> moves;
  if (mode & kScatter) moves.insert(moves.end(), scatter.begin(), scatter.end());
  if (mode & kGather)
    for (auto tick = scatter.rbegin(); tick != scatter.rend(); ++tick)
      moves.push_back(
          {tick->from, tick->receive_start, tick->receive_rows, tick->to, tick->send_start, tick->send_rows, false});
  return moves;
}

}  // namespace

Job::Job(const Plan& plan, const Order& order)
    : plan_(plan), order_(order), first_(plan.routes + 1), runs_(plan.routes), unfinished_(plan.routes) {
  for (int route = 0; route <= plan.routes; ++route) first_[route] = order.columns * route / plan.routes;
  table_.resize(plan.nodes * order.columns);
  for (int route = 0; route < plan.routes; ++route) {
    runs_[route].moves = moves_of(plan.scatter[route], order.mode);
    runs_[route].scatters = order.mode & kScatter ? plan.scatter[route].size() : 0;
  }
}

void Job::take(const float* given) {
  for (auto& run : runs_) run.sending = run.receiving = run.sent = run.got = run.rest_bytes = 0, run.ended = false;
  unfinished_ = plan_.routes;
  for (int route = 0; route < plan_.routes; ++route)
    for (int node = 0; node < plan_.nodes; ++node) {
      if (order_.mode == kGather && node != plan_.node) continue;
      const float* from = given + (order_.mode == kGather ? 0 : node * order_.columns) + first_[route];
      std::memcpy(row(route, plan_.own[route * plan_.nodes + node]), from, width(route) * sizeof(float));
    }
}

void Job::give(float* out) const {
  for (int route = 0; route < plan_.routes; ++route)
    for (int node = 0; node < plan_.nodes; ++node) {
      if (order_.mode == kScatter && node != plan_.node) continue;
      float* to = out + (order_.mode == kScatter ? 0 : node * order_.columns) + first_[route];
      std::memcpy(to, row(route, plan_.own[route * plan_.nodes + node]), width(route) * sizeof(float));
    }
}

void Job::advance(const Sockets& sockets, int route) {
  Run& run = runs_[route];
  if (run.ended || !error.empty()) return;
  bool moved = true;
  while (moved && error.empty()) {
    moved = receive(sockets, route);
    moved = send(sockets, route) || moved;
  }
  if (run.sending == run.moves.size() && run.receiving == run.moves.size() && error.empty()) {
    run.ended = true;
    --unfinished_;
  }
}

// Sends what it can; true if a move was sent wholly.
bool Job::send(const Sockets& sockets, int route) {
  Run& run = runs_[route];
  bool moved = false;
  while (run.sending < run.moves.size() && run.sending <= run.receiving) {
    const Move& move = run.moves[run.sending];
    if (run.sending == run.scatters && run.sent == 0) round_own(route);
    const size_t numbers = move.to < 0 ? 0 : move.send_rows * width(route), bytes = numbers * unit();
    if (run.sent < bytes) {
      const int socket = sockets.to(route, move.to);
      if (socket < 0) return moved;
      const float* rows = row(route, move.send_start);
      const void* message = rows;
      if (order_.bf16) {
        if (run.sent == 0) {
          run.rounded.resize(numbers);
          std::transform(rows, rows + numbers, run.rounded.begin(), to_bf16);
        }
        message = run.rounded.data();
      }
      const auto sent = ::send(socket, static_cast<const char*>(message) + run.sent, bytes - run.sent, MSG_NOSIGNAL);
      if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR)
          error = "cannot send to device " + std::to_string(move.to) + ": " + std::strerror(errno);
        return moved;
      }
      run.sent += sent;
      if (run.sent < bytes) continue;
    }
    ++run.sending;
    run.sent = 0;
    moved = true;
  }
  return moved;
}

// Receives what is there; true if a move was received wholly.
bool Job::receive(const Sockets& sockets, int route) {
  Run& run = runs_[route];
  bool moved = false;
  while (run.receiving < run.moves.size()) {
    const Move& move = run.moves[run.receiving];
    const size_t bytes = move.from < 0 ? 0 : move.receive_rows * width(route) * unit();
    if (run.got < bytes) {
      const int socket = sockets.to(route, move.from);
      if (socket < 0) return moved;
      float* rows = row(route, move.receive_start);
      const int64_t got = read(socket, run, rows, bytes);
      if (got == 0) error = "device " + std::to_string(move.from) + " has closed its connection";
      if (got < 0 && errno != EAGAIN && errno != EINTR)
        error = "cannot receive from device " + std::to_string(move.from) + ": " + std::strerror(errno);
      if (got <= 0) return moved;
      if (run.got < bytes) continue;
    }
    ++run.receiving;
    run.got = 0;
    moved = true;
  }
  return moved;
}

// Reads some of a message of so many bytes, and puts it where it belongs.
int64_t Job::read(int socket, Run& run, float* rows, size_t bytes) {
  const bool adds = run.moves[run.receiving].adds;
  if (!adds && !order_.bf16) {
    const auto got = ::recv(socket, reinterpret_cast<char*>(rows) + run.got, bytes - run.got, 0);
    if (got > 0) run.got += got;
    return got;
  }
  alignas(16) static thread_local unsigned char scratch[kScratchBytes];
  std::memcpy(scratch, run.rest, run.rest_bytes);
  const size_t room = std::min(bytes - run.got, kScratchBytes - run.rest_bytes);
  const auto got = ::recv(socket, scratch + run.rest_bytes, room, 0);
  if (got <= 0) return got;
  const size_t first = (run.got - run.rest_bytes) / unit(), whole = (run.rest_bytes + got) / unit();
  float* to = rows + first;
  if (order_.bf16) {
    const auto* come = reinterpret_cast<const uint16_t*>(scratch);
    for (size_t k = 0; k < whole; ++k) to[k] = (adds ? to[k] : 0.0f) + from_bf16(come[k]);
  } else {
    const auto* come = reinterpret_cast<const float*>(scratch);
    for (size_t k = 0; k < whole; ++k) to[k] += come[k];
  }
  run.got += got;
  const size_t left = (run.rest_bytes + got) % unit();
  std::memcpy(run.rest, scratch + whole * unit(), left);
  run.rest_bytes = left;
  return got;
}

// Rounded before the way back, the owner's copy is the same as everyone's.
void Job::round_own(int route) {
  if (!order_.bf16) return;
  float* own = row(route, plan_.own[route * plan_.nodes + plan_.node]);
  for (int64_t k = 0; k < width(route); ++k) own[k] = from_bf16(to_bf16(own[k]));
}

}  // namespace podium
