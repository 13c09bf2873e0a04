#include "promises.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "index.h"
#include "podium_native.h"
#include "resize.h"

namespace podium_fuzz {
namespace {

constexpr double slow_seconds = 2;             // of processor time for one image, sanitizers and all
constexpr int64_t max_timed_pixels = 1 << 19;  // of a box: beyond, resizing takes the time
constexpr int64_t max_fuzz_pixels = 4 << 20;
constexpr uint8_t guard = 0xA5;
constexpr size_t guard_bytes = 64;

[[noreturn]] void broken(long mutant, const char* promise) {
  std::fprintf(stderr, "mutant %ld: %s\n", mutant, promise);
  std::abort();
}

// A batch picture with guards around it, for writes by code the sanitizer did not compile.
struct Slot {
  explicit Slot(int out_size)
      : bytes(static_cast<size_t>(out_size) * out_size * 3), memory(bytes + 2 * guard_bytes, guard) {}
  uint8_t* data() { return memory.data() + guard_bytes; }
  bool intact() const {
    return std::all_of(memory.begin(), memory.begin() + guard_bytes, [](uint8_t b) { return b == guard; }) &&
           std::all_of(memory.end() - guard_bytes, memory.end(), [](uint8_t b) { return b == guard; });
  }
  bool operator==(const Slot& other) const { return memory == other.memory; }
  size_t bytes;
  Bytes memory;
};

int32_t random_edge(Random& random, int32_t n) {
  constexpr int32_t edges[] = {0, -1, 1, INT32_MIN, INT32_MAX, 1 << 20, -(1 << 20), 65536};
  return random.next() % 50 == 0 ? edges[random.next() % 8] : static_cast<int32_t>(random.between(-n / 4, n));
}

// What is done with a file: the same each time, so that results can be compared.
struct Work {
  long mutant;
  const Bytes& file;
  int32_t box[4];
  uint8_t flip;
  int32_t out_size;

  int64_t box_pixels() const { return static_cast<int64_t>(box[2]) * box[3]; }
};

struct Outcome {
  explicit Outcome(int out_size) : slot(out_size) {}
  Slot slot;
  int32_t status = -1;
  uint8_t stale = 9;
};

Outcome decode(const Work& work, int32_t flags, const Bytes* index) {
  Outcome outcome(work.out_size);
  const uint8_t *jpeg = work.file.data(), *index_data = index ? index->data() : nullptr;
  const size_t jpeg_bytes = work.file.size(), index_bytes = index ? index->size() : 0;
  podium_batch batch{};
  batch.count = batch.threads = 1;
  batch.out_size = work.out_size;
  batch.flags = flags;
  batch.images = &jpeg;
  batch.image_bytes = &jpeg_bytes;
  batch.indexes = index ? &index_data : nullptr;
  batch.index_bytes = &index_bytes;
  batch.boxes = work.box;
  batch.flips = &work.flip;
  batch.out = outcome.slot.data();
  batch.statuses = &outcome.status;
  batch.stale = &outcome.stale;
  const std::clock_t begin = std::clock();
  podium_decode_batch(&batch);
  const bool slow = std::clock() - begin > slow_seconds * CLOCKS_PER_SEC;
  if (slow && work.box_pixels() <= max_timed_pixels) broken(work.mutant, "took too long");
  if (!outcome.slot.intact()) broken(work.mutant, "decode_batch wrote outside its slot");
  const uint8_t* out = outcome.slot.data();
  if (outcome.status != PODIUM_OK && std::any_of(out, out + outcome.slot.bytes, [](uint8_t b) { return b; })) {
    broken(work.mutant, "a failed slot is not black");
  }
  return outcome;
}

void check_same(const Work& work, const Outcome& a, const Outcome& b, const char* what) {
  if (a.status == b.status && a.slot == b.slot) return;
  std::fprintf(stderr, "%s: status %d, %d\n", what, a.status, b.status);
  broken(work.mutant, "decoders differ");
}

// Against libjpeg: our own decoder, as the processor allows, in AVX2 and plain, with all sorts of indexes.
Outcome check_decoders(const Work& work, const Bytes& other, Random& random) {
  const Outcome reference = decode(work, PODIUM_LIBJPEG, nullptr);
  check_same(work, reference, decode(work, 0, nullptr), "our own");
  if (work.box_pixels() > max_timed_pixels) return reference;  // seconds of resizing each, and nothing new
  check_same(work, reference, decode(work, PODIUM_AVX2, nullptr), "AVX2");
  check_same(work, reference, decode(work, PODIUM_PLAIN, nullptr), "plain C++");

  const Bytes own = index_of(work.file);
  if (!own.empty()) {
    // The codes of the whole file are sound, so all must agree, and nothing may be stale.
    for (const int32_t flags : {0, int32_t{PODIUM_PLAIN}}) {
      const Outcome indexed = decode(work, flags, &own);
      check_same(work, reference, indexed, "its index");
      if (indexed.stale != 0) broken(work.mutant, "a good index is called stale");
    }
    Bytes damaged = mutated(own, {own, other}, random);
    const Outcome with_damaged = decode(work, 0, &damaged);
    check_same(work, reference, with_damaged, "a damaged index");
    if (with_damaged.stale != (damaged.empty() || damaged == own ? 0 : 1)) broken(work.mutant, "damage is not seen");
    if (damaged.size() >= podium::index_head_bytes) {  // sealed again: pixels may be anything, memory may not
      const uint64_t seal = podium::index_seal(damaged.data(), damaged.size(), work.file.data(), work.file.size());
      for (int i = 0; i < 8; ++i) damaged[8 + i] = static_cast<uint8_t>(seal >> (8 * i));
      decode(work, random.next() % 2 ? PODIUM_PLAIN : 0, &damaged);
    }
  }
  if (!other.empty() && other != own) {
    const Outcome with_other = decode(work, 0, &other);
    check_same(work, reference, with_other, "another file's index");
    if (with_other.stale != 1) broken(work.mutant, "another file's index is not seen");
  }
  return reference;
}

void check_resize(const Work& work, const Bytes& pixels, const int32_t* size) {
  Slot vector(work.out_size), portable(work.out_size);
  podium::ResizeScratch scratch;
  const size_t stride = static_cast<size_t>(size[0]) * 3;
  podium::resize(pixels.data(), stride, size[0], size[1], work.flip, work.out_size, vector.data(), scratch);
  podium::resize_portable(pixels.data(), stride, size[0], size[1], work.flip, work.out_size, portable.data(), scratch);
  if (!(vector == portable)) broken(work.mutant, "the vector resize differs from the portable one");
}

// A file that decodes whole gives the same bits by crop as from its pixels, and both decoders the same pixels.
int32_t check_whole(const Work& work, const int32_t* size, const Outcome& cropped) {
  Bytes pixels(static_cast<size_t>(size[0]) * size[1] * 3), by_libjpeg(pixels.size());
  const int32_t whole = podium_decode_pixels(work.file.data(), work.file.size(), size, 0, pixels.data());
  const int32_t reference =
      podium_decode_pixels(work.file.data(), work.file.size(), size, PODIUM_LIBJPEG, by_libjpeg.data());
  if (whole != reference) broken(work.mutant, "whole images have different statuses");
  if (whole != PODIUM_OK) return whole;
  if (pixels != by_libjpeg) broken(work.mutant, "whole images have different pixels");

  Outcome resized(work.out_size);
  const uint8_t* image = pixels.data();
  podium_batch batch{};
  batch.count = batch.threads = 1;
  batch.out_size = work.out_size;
  batch.images = &image;
  batch.sizes_wh = size;
  batch.boxes = work.box;
  batch.flips = &work.flip;
  batch.out = resized.slot.data();
  batch.statuses = &resized.status;
  podium_resize_batch(&batch);
  if (!resized.slot.intact()) broken(work.mutant, "resize_batch wrote outside its slot");
  check_same(work, cropped, resized, "crop and pixels");
  check_resize(work, pixels, size);
  return cropped.status;
}

}  // namespace

Bytes index_of(const Bytes& file) {
  Bytes index(PODIUM_INDEX_BOUND(file.size()));
  size_t index_bytes = 0;
  const int32_t status = podium_build_index(file.data(), file.size(), 0, index.data(), &index_bytes);
  index.resize(status == PODIUM_OK ? index_bytes : 0);
  index.shrink_to_fit();
  return index;
}

int32_t check_promises(long mutant, const Bytes& file, const Bytes& other, Random& random) {
  int32_t size[2] = {100, 100};
  const int32_t header = podium_jpeg_size(file.data(), file.size(), size);
  const Work work{mutant,
                  file,
                  {random_edge(random, size[0]), random_edge(random, size[1]),
                   std::max(1, random_edge(random, size[0])), std::max(1, random_edge(random, size[1]))},
                  static_cast<uint8_t>(random.next() % 2),
                  static_cast<int32_t>(random.between(1, 40))};
  if (work.box_pixels() > max_fuzz_pixels && random.next() % 8) return header;
  const Outcome cropped = check_decoders(work, other, random);
  if (header != PODIUM_OK && cropped.status != header) broken(mutant, "the header's status is not the batch's");
  if (header != PODIUM_OK || static_cast<int64_t>(size[0]) * size[1] > max_fuzz_pixels) return cropped.status;
  return check_whole(work, size, cropped);
}

}  // namespace podium_fuzz
