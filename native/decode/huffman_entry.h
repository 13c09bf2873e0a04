// The form of a table entry, between those who write it and those who read it.
#pragma once

#include <cstdint>

namespace podium {

// Places that no run reaches, so that the reader can tell them apart.
constexpr int end_of_block = 64, closer_look = 128;
// In place of a symbol: the code is longer than the look, and none of its bits are taken yet.
constexpr int code_unknown = 0x7FFF;

constexpr uint32_t entry(int length, int moves, int value) {
  return static_cast<uint32_t>(length) | static_cast<uint32_t>(moves) << 8 | static_cast<uint32_t>(value) << 16;
}

}  // namespace podium
