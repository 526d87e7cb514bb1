#include "engine/data/digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <span>
#include <string_view>
#include <thread>

#include "engine/data/digit_glyphs.h"
#include "engine/data/idx.h"
#include "engine/formats/file_writer.h"
#include "engine/mapped_file.h"
#include "engine/random.h"

namespace dtrain::engine {

namespace {

constexpr int kSide = DigitImages::kSide;
constexpr size_t kPixels = size_t{kSide} * kSide;
constexpr uint64_t kTestFirst = uint64_t{1} << 32;  // no image of training is one of testing

// How different the images are. Chosen such that a small fully connected network gets about 96 % of
// them right and a convolutional one 99 %; engine/README.md has the figures.
constexpr double kPointJitter = 8;     // deviation, in hundredths of half a digit's height
constexpr double kTanHalfTurn = 0.15;  // at most: 17 degrees
constexpr double kShear = 0.35;
constexpr double kShift = 4;  // pixels, at most
constexpr double kNoise = 0.1;

float between(RandomRow& random, double low, double high) {
  return static_cast<float>(random.uniform(low, high));
}

// From glyphs to pixels: a turn, a slant, a size and a place.
struct Transform {
  float xx, xy, yx, yy, x0, y0;
  Point operator()(Point p) const { return {xx * p.x + xy * p.y + x0, yx * p.x + yy * p.y + y0}; }
};

Transform random_transform(RandomRow& random) {
  // By the tangent of half the angle, sine and cosine are fractions: no function of libm is needed.
  const float t = between(random, -kTanHalfTurn, kTanHalfTurn);
  const float cosine = (1 - t * t) / (1 + t * t), sine = 2 * t / (1 + t * t);
  const float shear = between(random, -kShear, kShear);
  const float height = between(random, 0.072, 0.105);
  const float width = height * between(random, 0.75, 1.25);
  const float middle = (kSide - 1) / 2.0f;
  return {cosine * width, (-cosine * shear - sine) * height,
          sine * width,   (-sine * shear + cosine) * height,
          middle + between(random, -kShift, kShift), middle + between(random, -kShift, kShift)};
}

// Catmull-Rom: a point between b and c on the curve a, b, c, d.
Point on_curve(Point a, Point b, Point c, Point d, float t) {
  const auto along = [t](float p, float q, float r, float s) {
    return q + 0.5f * t * (r - p + t * (2 * p - 5 * q + 4 * r - s + t * (3 * (q - r) + s - p)));
  };
  return {along(a.x, b.x, c.x, d.x), along(a.y, b.y, c.y, d.y)};
}

std::vector<Point> path_of(const Stroke& stroke, const std::vector<Point>& points) {
  if (!stroke.smooth || points.size() < 3) return points;
  constexpr int kPieces = 5;
  std::vector<Point> path;
  const size_t last = points.size() - 1;
  for (size_t i = 0; i < last; ++i) {
    const Point before = points[i == 0 ? 0 : i - 1], after = points[std::min(i + 2, last)];
    for (int piece = 0; piece < kPieces; ++piece) {
      const float t = static_cast<float>(piece) / kPieces;
      path.push_back(on_curve(before, points[i], points[i + 1], after, t));
    }
  }
  path.push_back(points.back());
  return path;
}

using Distances = std::array<float, kPixels>;  // squared, from each pixel to the nearest line

void draw_line(Point a, Point b, float reach, Distances& distances) {
  const auto clamp = [](float at) {
    return static_cast<int>(std::clamp(at, 0.0f, static_cast<float>(kSide - 1)));
  };
  const float dx = b.x - a.x, dy = b.y - a.y;
  const float squared = dx * dx + dy * dy;
  const float inverse = squared > 0 ? 1 / squared : 0;
  const int right = clamp(std::max(a.x, b.x) + reach), low = clamp(std::max(a.y, b.y) + reach);
  for (int y = clamp(std::min(a.y, b.y) - reach); y <= low; ++y) {
    for (int x = clamp(std::min(a.x, b.x) - reach); x <= right; ++x) {
      const float px = static_cast<float>(x) - a.x, py = static_cast<float>(y) - a.y;
      const float t = std::clamp((px * dx + py * dy) * inverse, 0.0f, 1.0f);
      const float ex = px - t * dx, ey = py - t * dy;
      float& distance = distances[static_cast<size_t>(y * kSide + x)];
      distance = std::min(distance, ex * ex + ey * ey);
    }
  }
}

// Each pixel gets some of its four neighbours.
void blur(std::array<float, kPixels>& grey, float part) {
  const auto row = [part](float* at, size_t step) {
    float before = 0;
    for (int i = 0; i < kSide; ++i) {
      const float here = at[static_cast<size_t>(i) * step];
      const float after = i + 1 < kSide ? at[static_cast<size_t>(i + 1) * step] : 0;
      at[static_cast<size_t>(i) * step] = here + part * (before + after - 2 * here);
      before = here;
    }
  };
  for (size_t y = 0; y < kSide; ++y) row(grey.data() + y * kSide, 1);
  for (size_t x = 0; x < kSide; ++x) row(grey.data() + x, kSide);
}

// Of deviation 1, near enough to a normal number for noise.
float noise(RandomRow& random) {
  const uint32_t word = random.word();
  const uint32_t sum = (word & 0xff) + (word >> 8 & 0xff) + (word >> 16 & 0xff) + (word >> 24);
  return (static_cast<float>(sum) - 510) / 147.8f;
}

uint8_t draw_digit(const std::vector<std::vector<Glyph>>& glyphs, RandomRow random, uint8_t* pixels) {
  const auto digit = static_cast<size_t>(random.below(glyphs.size()));
  const Glyph& glyph = glyphs[digit][random.below(glyphs[digit].size())];
  const Transform transform = random_transform(random);
  const float radius = between(random, 0.6, 1.7);  // of the pen
  Distances distances;
  distances.fill(1e9f);
  for (const Stroke& stroke : glyph) {
    std::vector<Point> points = stroke.points;
    for (Point& point : points) {
      point.x += static_cast<float>(kPointJitter * random.normal());
      point.y += static_cast<float>(kPointJitter * random.normal());
      point = transform(point);
    }
    const std::vector<Point> path = path_of(stroke, points);
    for (size_t i = 0; i + 1 < path.size(); ++i) {
      draw_line(path[i], path[i + 1], radius + 1, distances);
    }
  }
  std::array<float, kPixels> grey;
  const float ink = between(random, 0.65, 1);
  for (size_t i = 0; i < kPixels; ++i) {
    grey[i] = ink * std::clamp(radius + 0.5f - std::sqrt(distances[i]), 0.0f, 1.0f);
  }
  blur(grey, between(random, 0, 0.2));
  for (size_t i = 0; i < kPixels; ++i) {
    const float value = grey[i] + static_cast<float>(kNoise) * noise(random);
    pixels[i] = static_cast<uint8_t>(std::clamp(value, 0.0f, 1.0f) * 255 + 0.5f);
  }
  return static_cast<uint8_t>(digit);
}

struct DrawnFile {
  std::filesystem::path path;
  std::vector<uint8_t> header;
  std::span<const uint8_t> bytes;
};

std::vector<DrawnFile> files_of(const DigitImages& images, const std::filesystem::path& folder, std::string_view prefix) {
  const auto count = static_cast<uint32_t>(images.labels.size());
  return {{folder / fmt::format("{}-images-idx3-ubyte", prefix), idx_header(kIdxImages, {count, kSide, kSide}), images.pixels},
          {folder / fmt::format("{}-labels-idx1-ubyte", prefix), idx_header(kIdxLabels, {count}), images.labels}};
}

// Whether no other file has its place.
Status check_place(const DrawnFile& drawn) {
  std::error_code ignored;
  if (!std::filesystem::exists(drawn.path, ignored)) return ok();
  TRY(const MappedFile found, MappedFile::open(drawn.path));
  const auto bytes = found.bytes(), header = std::as_bytes(std::span(drawn.header)), rest = std::as_bytes(drawn.bytes);
  if (bytes.size() == header.size() + rest.size() && std::ranges::equal(bytes.first(header.size()), header) &&
      std::ranges::equal(bytes.subspan(header.size()), rest)) {
    return ok();
  }
  return Error{Code::AlreadyExists, fmt::format("another {} is there already", drawn.path.native()),
               "--overwrite replaces it"};
}

Status write(const DrawnFile& drawn) {
  const std::filesystem::path folder = drawn.path.parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return errno_error(fmt::format("create {}", folder.native()), error.value());
  return replace_file(drawn.path, [&](FileWriter& file) -> Status {
    TRY(file.write(std::as_bytes(std::span(drawn.header))));
    return file.write(std::as_bytes(drawn.bytes));
  });
}

}  // namespace

DigitImages draw_digits(uint64_t seed, uint64_t first, int64_t count) {
  const auto size = static_cast<size_t>(count);
  DigitImages images{std::vector<uint8_t>(size * kPixels), std::vector<uint8_t>(size)};
  const auto glyphs = digit_glyphs();
  const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 16);
  std::vector<std::thread> others;
  const auto part = [&](size_t thread) {
    for (size_t i = thread * size / threads; i < (thread + 1) * size / threads; ++i) {
      images.labels[i] = draw_digit(glyphs, RandomRow(seed, kDigitStream, first + i),
                                    images.pixels.data() + i * kPixels);
    }
  };
  for (size_t thread = 1; thread < threads; ++thread) others.emplace_back(part, thread);
  part(0);
  for (std::thread& other : others) other.join();
  return images;
}

Status generate_digits(const std::filesystem::path& folder, const DigitOptions& options) {
  if (options.train <= 0 || options.test <= 0 || std::max(options.train, options.test) > 10'000'000) {
    return Error{Code::InvalidArgument,
                 fmt::format("{} and {} images: from 1 to 10,000,000 of each can be drawn",
                             options.train, options.test),
                 ""};
  }
  const DigitImages train = draw_digits(options.seed, 0, options.train);
  const DigitImages test = draw_digits(options.seed, kTestFirst, options.test);
  std::vector<DrawnFile> files = files_of(train, folder / "train", "train");
  std::ranges::move(files_of(test, folder / "test", "t10k"), std::back_inserter(files));
  if (!options.overwrite) {
    for (const DrawnFile& file : files) TRY(check_place(file));
  }
  for (const DrawnFile& file : files) TRY(write(file));
  return ok();
}

}  // namespace dtrain::engine
