// Times the decoder's paths and stages on files, in thread CPU time: measure ROUNDS FILE…. Paths take turns on the same
// random resized crops to 224 pixels, an image at a time; the time of the transform and of colours is what is saved by
// leaving them out. Prints JSON.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "decode.h"
#include "podium_native.h"

using namespace podium;

namespace {

constexpr int out_size = 224;

struct Sample {
  std::vector<uint8_t> file, index;
  int width, height;
};

double seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<uint8_t> read_file(const char* path) {
  std::FILE* file = std::fopen(path, "rb");
  if (!file) std::exit(2);
  std::vector<uint8_t> bytes;
  uint8_t chunk[65536];
  for (size_t got; (got = std::fread(chunk, 1, sizeof chunk, file)) > 0;) bytes.insert(bytes.end(), chunk, chunk + got);
  std::fclose(file);
  return bytes;
}

// As everyone draws it: 8 … 100 % of the area, 3/4 … 4/3 of the aspect.
Rect random_crop(const Sample& sample, std::mt19937& random) {
  std::uniform_real_distribution<double> area(0.08, 1), ratio(std::log(3.0 / 4), std::log(4.0 / 3)), unit(0, 1);
  for (int tries = 0; tries < 10; ++tries) {
    const double pixels = area(random) * sample.width * sample.height, aspect = std::exp(ratio(random));
    const int w = static_cast<int>(std::lround(std::sqrt(pixels * aspect)));
    const int h = static_cast<int>(std::lround(std::sqrt(pixels / aspect)));
    if (w < 1 || h < 1 || w > sample.width || h > sample.height) continue;
    return {static_cast<int>(unit(random) * (sample.width - w + 1)),
            static_cast<int>(unit(random) * (sample.height - h + 1)), w, h};
  }
  const int side = std::min(sample.width, sample.height);
  return {(sample.width - side) / 2, (sample.height - side) / 2, side, side};
}

void no_transform(int16_t*, const int16_t*, uint8_t*, size_t) {}
void no_h2v1(const uint8_t*, int, uint8_t*) {}
void no_h1v2(const uint8_t*, const uint8_t*, int, int, uint8_t*) {}
void no_h2v2(const uint8_t*, const uint8_t*, int, uint8_t*) {}
void no_colour(const uint8_t*, const uint8_t*, const uint8_t*, int, uint8_t*) {}
void no_grey(const uint8_t*, int, uint8_t*) {}

class Bench {
 public:
  Bench() : uncoloured_(kernels(0)), untransformed_(kernels(0)) {
    for (Kernels* some : {&uncoloured_, &untransformed_}) {
      some->upsample_h2v1 = no_h2v1;
      some->upsample_h1v2 = no_h1v2;
      some->upsample_h2v2 = no_h2v2;
      some->rgb_from_ycc = no_colour;
      some->rgb_from_grey = no_grey;
    }
    untransformed_.transform_pair = no_transform;
  }

  void round(const Sample& sample, const Rect& box) {
    whole("libjpeg", sample, box, PODIUM_LIBJPEG, false);
    whole("without_index", sample, box, 0, false);
    whole("with_index", sample, box, 0, true);
    part("open", sample, box, nullptr);
    part("huffman", sample, box, &untransformed_);
    part("idct", sample, box, &uncoloured_);
    part("colour", sample, box, &kernels(0));
  }

  std::map<std::string, double> total;  // seconds

 private:
  // Decode, crop and resize.
  void whole(const char* name, const Sample& sample, const Rect& box, int32_t flags, bool indexed) {
    const double begin = seconds();
    const File file{sample.file.data(), sample.file.size(), indexed ? sample.index.data() : nullptr,
                    indexed ? sample.index.size() : 0};
    Decoded decoded;
    if (decode_box(file, box, flags, scratch_, &decoded) != PODIUM_OK || decoded.stale) std::exit(3);
    const double decoded_by = seconds();
    cut(scratch_.decoded.data(), decoded.have, decoded.width, decoded.height, box, false, out_size, out_, scratch_);
    const double end = seconds();
    total[name] += end - begin;
    if (indexed) total["resize"] += end - decoded_by;
  }

  // Up to some stage, with the index; without kernels, only what comes before the first code.
  void part(const char* name, const Sample& sample, const Rect& box, const Kernels* some) {
    const double begin = seconds();
    BaselineReader reader(scratch_.baseline, some ? *some : kernels(0));
    SeekIndex index;
    const bool opened =
        reader.open(sample.file.data(), sample.file.size()) &&
        index.open(sample.index.data(), sample.index.size(), sample.file.data(), sample.file.size(), reader.header());
    if (!opened) std::exit(3);
    uint8_t* out = scratch_.decoded.at_least(static_cast<size_t>(box.w) * box.h * 3);
    if (some && !reader.read(box, index.has_places() ? &index : nullptr, out)) std::exit(3);
    total[name] += seconds() - begin;
    if (some == &untransformed_) scratch_.baseline.coefficients.clear();  // the transform would have
  }

  Kernels uncoloured_, untransformed_;
  Scratch scratch_;
  uint8_t out_[out_size * out_size * 3];
};

}  // namespace

int main(int argc, char** argv) {
  std::vector<Sample> samples;
  size_t bytes = 0, index_bytes = 0;
  double building = 0;
  for (int i = 2; i < argc; ++i) {
    Sample sample;
    sample.file = read_file(argv[i]);
    sample.index.resize(PODIUM_INDEX_BOUND(sample.file.size()));
    int32_t size[2];
    size_t written = 0;
    if (podium_jpeg_size(sample.file.data(), sample.file.size(), size) != PODIUM_OK) continue;
    const double begin = seconds();
    podium_build_index(sample.file.data(), sample.file.size(), 0, sample.index.data(), &written);
    building += seconds() - begin;
    if (written == 0) continue;  // libjpeg's
    sample.index.resize(written);
    sample.width = size[0];
    sample.height = size[1];
    bytes += sample.file.size();
    index_bytes += written;
    samples.push_back(std::move(sample));
  }
  const int rounds = std::atoi(argv[1]);
  std::mt19937 random(1);
  std::printf("{\"files\": %zu, \"bytes\": %zu, \"index_bytes\": %zu, \"build_ms\": %.4f, \"rounds\": [",
              samples.size(), bytes, index_bytes, building * 1e3 / static_cast<double>(samples.size()));
  for (int r = 0; r < rounds; ++r) {
    Bench bench;
    for (const Sample& sample : samples) bench.round(sample, random_crop(sample, random));
    std::printf("%s{", r ? ", " : "");
    const char* comma = "";
    for (const auto& [name, spent] : bench.total) {
      std::printf("%s\"%s\": %.4f", comma, name.c_str(), spent * 1e3 / static_cast<double>(samples.size()));
      comma = ", ";
    }
    std::printf("}");
  }
  std::printf("]}\n");
}
