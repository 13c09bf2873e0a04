// A thread's working memory: it only grows, by half at least, and its contents go when it does. Pages that are never
// written are never the process's. A vector clears what it gets, and page faults were then the third largest cost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

namespace podium {

template <class T>
class Memory {
 public:
  // Not cleared.
  T* at_least(size_t size) {
    grow(size, [](size_t count) { return new T[count]; });
    return memory_.get();
  }
  // For a buffer of which the user clears again what it writes.
  T* at_least_zeros(size_t size) {
    grow(size, [](size_t count) { return new T[count](); });
    return memory_.get();
  }
  T* data() const { return memory_.get(); }
  void clear() { std::fill_n(memory_.get(), size_, T{}); }

 private:
  template <class New>
  void grow(size_t size, New make) {
    if (size <= size_) return;
    const size_t grown = std::max(size, size_ + size_ / 2);
    memory_.reset();
    size_ = 0;
    memory_.reset(make(grown));
    size_ = grown;
  }

  std::unique_ptr<T[]> memory_;
  size_t size_ = 0;
};

}  // namespace podium
