#include "engine/data/dataset.h"

#include <doctest/doctest.h>
#include <sys/fsuid.h>
#include <sys/resource.h>

#include <cmath>
#include <tuple>

#include "tests/engine/data/image_bytes.h"
#include "tests/engine/scratch.h"

namespace dtrain::engine {
namespace {

namespace fs = std::filesystem;

void says(const Result<Dataset>& set, std::initializer_list<const char*> words) {
  REQUIRE_FALSE(set.ok());
  for (const char* word : words) {
    CHECK_MESSAGE(set.error().message.find(word) != std::string::npos, set.error().message);
  }
}

void put_mnist(const CaseFolder& folder, const std::string& part, uint32_t images,
               const std::vector<uint8_t>& labels, const std::string& below = ".") {
  put(folder / below / (part + "-images-idx3-ubyte"), image_bytes(images));
  put(folder / below / (part + "-labels-idx1-ubyte"), label_bytes(labels));
}

TEST_CASE("images come standardised by the mean and deviation of all of them") {
  const CaseFolder folder;
  put_mnist(folder, "train", 3, {0, 7, 1});
  const auto set = Dataset::open(folder.path(), {});
  REQUIRE(set.ok());
  CHECK(set->kind() == Dataset::Kind::Images);
  CHECK(set->size() == 3);
  CHECK(set->shape() == std::array<int64_t, 3>{1, 2, 3});
  CHECK(set->classes() == 8);
  CHECK(set->mean() == doctest::Approx(12.5 / 255));

  std::vector<float> x(18);
  std::vector<int32_t> labels(3);
  const std::vector<uint32_t> ids = {2, 0, 1};
  set->images(ids, x.data(), labels.data());
  CHECK(labels == std::vector<int32_t>{1, 0, 7});
  CHECK(x[0] == doctest::Approx((20 / 255.0 - set->mean()) / set->deviation()));
  double sum = 0, squares = 0;
  for (const float value : x) {
    sum += value;
    squares += value * value;
  }
  CHECK(sum == doctest::Approx(0).epsilon(1e-5));
  CHECK(squares == doctest::Approx(18));
}

TEST_CASE("what most pixels are is known of the training set, as images have it") {
  const CaseFolder folder;
  // 5 of 12, and what is left differs.
  put(folder / "train" / "train-images-idx3-ubyte", idx_bytes(kIdxImages, {2, 2, 3}, {9, 0, 1, 9, 9, 2, 3, 9, 4, 5, 9, 6}));
  put(folder / "train" / "train-labels-idx1-ubyte", label_bytes({0, 1}));
  put(folder / "test" / "t10k-images-idx3-ubyte", idx_bytes(kIdxImages, {1, 2, 3}, {7, 7, 7, 7, 7, 9}));
  put(folder / "test" / "t10k-labels-idx1-ubyte", label_bytes({1}));
  const auto training = Dataset::open(folder / "train", {});
  REQUIRE(training.ok());
  const auto test = Dataset::open_like(*training, folder / "test");
  REQUIRE(test.ok());
  CHECK(training->common().share == doctest::Approx(5.0 / 12));
  CHECK(test->common().share == training->common().share);
  float x[6];
  int32_t label = 0;
  const uint32_t id = 0;
  training->images({&id, 1}, x, &label);
  CHECK(x[0] == training->common().value);
  CHECK(x[1] != x[0]);
  test->images({&id, 1}, x, &label);
  CHECK(x[5] == test->common().value);
  CHECK(x[0] != x[5]);

  // Of numbers, the least or the largest.
  for (const auto& [numbers, most, share] : std::vector<std::tuple<std::vector<float>, size_t, double>>{
           {{0.5f, 0, 0, 2, 2, 2}, 3, 0.5}, {{0.5f, 0, 0, 0, 1.5f, 2}, 1, 0.5}, {{0.5f, 0.5f, 0.5f, 0, 1, 1}, 4, 1.0 / 3}}) {
    put(folder / "images.npy", npy_bytes("<f4", "(2, 3)", raw_bytes<float>(numbers)));
    put(folder / "labels.npy", npy_bytes("<i8", "(2,)", raw_bytes<int64_t>({1, 0})));
    const auto set = Dataset::open(folder.path(), {});
    REQUIRE(set.ok());
    int32_t labels[2];
    const std::vector<uint32_t> ids = {0, 1};
    set->images(ids, x, labels);
    CHECK(set->common().value == x[most]);
    CHECK(set->common().share == doctest::Approx(share));
  }
}

TEST_CASE("other data of the same form has another checksum, and a copy the same") {
  const CaseFolder folder;
  const auto of_labels = [&](const std::vector<uint8_t>& labels) {
    put_mnist(folder, "train", 3, labels);
    return Dataset::open(folder.path(), {}).value().checksum();
  };
  CHECK(of_labels({0, 7, 1}) == of_labels({0, 7, 1}));
  CHECK(of_labels({0, 7, 1}) != of_labels({7, 0, 1}));
  const auto of_images = [&](const std::vector<uint8_t>& pixels) {
    put(folder / "train-images-idx3-ubyte", idx_bytes(kIdxImages, {3, 1, 2}, pixels));
    return Dataset::open(folder.path(), {}).value().checksum();
  };
  CHECK(of_images({1, 2, 3, 4, 5, 6}) != of_images({3, 4, 1, 2, 5, 6}));
  const auto of_tokens = [&](const char* name, const std::string& bytes) {
    put(folder / name, bytes);
    return Dataset::open(folder / name, {.context = 4}).value().checksum();
  };
  CHECK(of_tokens("a.u16.bin", raw_bytes<uint16_t>({1, 2, 3, 4, 5, 6})) == of_tokens("b.u16.bin", raw_bytes<uint16_t>({1, 2, 3, 4, 5, 6})));
  CHECK(of_tokens("a.u16.bin", raw_bytes<uint16_t>({1, 2, 3, 4, 5, 6})) != of_tokens("a.u16.bin", raw_bytes<uint16_t>({1, 2, 4, 3, 5, 6})));
  for (const size_t size : {10, 5'000, 3'000'000}) {
    const std::string text(size, 'x');
    for (const size_t at : {size_t{0}, size - 1}) {
      std::string other = text;
      other[at] = 'y';
      CHECK(of_tokens("text", text) != of_tokens("text", other));
    }
  }
}

TEST_CASE("classes that no image has are told of, with the label that there are so many for") {
  const CaseFolder folder;
  put_mnist(folder, "train", 3, {0, 1, 0}, "whole");
  CHECK(Dataset::open(folder / "whole", {})->empty_classes() == "");
  put_mnist(folder, "train", 3, {0, 200, 1}, "stray");
  const auto stray = Dataset::open(folder / "stray", {});
  REQUIRE(stray.ok());
  CHECK(stray->empty_classes() == "198 of 201 classes have no image: the largest label is 200, at index 1 of " +
                                      (folder / "stray/train-labels-idx1-ubyte").string());
}

TEST_CASE("a folder with both parts gives each, one with a single pair that one") {
  const CaseFolder folder;
  put_mnist(folder, "train", 3, {0, 1, 2}, "both");
  put_mnist(folder, "t10k", 2, {1, 1}, "both");
  put(folder / "test" / "images-idx3-ubyte.gz", gzipped(image_bytes(4)));
  put(folder / "test" / "labels.idx1-ubyte", label_bytes({0, 1, 2, 0}));
  const auto training = Dataset::open(folder / "both", {});
  REQUIRE(training.ok());
  CHECK(training->size() == 3);
  CHECK(Dataset::open_like(*training, folder / "both").value().size() == 2);
  CHECK(Dataset::open_like(*training, folder / "test").value().size() == 4);
  // As torchvision leaves them.
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"}) {
    put(folder / "both" / (std::string(name) + ".gz"), gzipped(get(folder / "both" / name)));
  }
  CHECK(Dataset::open(folder / "both", {}).value().size() == 3);
  CHECK(Dataset::open_like(*training, folder / "both").value().size() == 2);
  put_mnist(folder, "extra", 1, {1}, "test");
  says(Dataset::open_like(*training, folder / "test"),
       {"0 files of images for testing among extra-images-idx3-ubyte, images-idx3-ubyte.gz"});
}

TEST_CASE("folders that are called as files are passed by, and a test set that is missing is not the training set") {
  const CaseFolder folder;
  // As an archive of MNIST unpacks: train-images.idx3-ubyte beside train-images-idx3-ubyte/ with the same.
  put_mnist(folder, "train", 3, {0, 1, 2}, "whole");
  for (const std::string kind : {"images", "labels"}) {
    const fs::path of = folder / "whole" / fmt::format("train-{}-idx{}-ubyte", kind, kind == "images" ? 3 : 1);
    fs::rename(of, folder / "whole" / fmt::format("train-{}.idx{}-ubyte", kind, kind == "images" ? 3 : 1));
    fs::create_directory(of);
    put(folder / "zipped" / (of.filename().string() + ".gz"), gzipped(kind == "images" ? image_bytes(2) : label_bytes({0, 1})));
    fs::create_directory(folder / "zipped" / of.filename());
  }
  const auto training = Dataset::open(folder / "whole", {});
  REQUIRE(training.ok());
  CHECK(training->size() == 3);
  CHECK(Dataset::open(folder / "zipped", {}).value().size() == 2);
  says(Dataset::open_like(*training, folder / "whole"), {"0 files of images for testing among train-images.idx3-ubyte"});
}

TEST_CASE("a test set has the measures and the classes of its training set") {
  const CaseFolder folder;
  put_mnist(folder, "train", 3, {0, 1, 4}, "train");
  put_mnist(folder, "t10k", 1, {1}, "test");
  const auto training = Dataset::open(folder / "train", {});
  REQUIRE(training.ok());
  const auto test = Dataset::open_like(*training, folder / "test");
  REQUIRE(test.ok());
  CHECK(test->classes() == 5);
  CHECK(test->mean() == training->mean());
  CHECK(test->deviation() == training->deviation());
  put_mnist(folder, "t10k", 2, {1, 5}, "test");
  says(Dataset::open_like(*training, folder / "test"),
       {"t10k-labels-idx1-ubyte", "label 5 at index 1", "5 classes"});
  put(folder / "test" / "t10k-images-idx3-ubyte", idx_bytes(kIdxImages, {2, 1, 1}, {1, 2}));
  put(folder / "test" / "t10k-labels-idx1-ubyte", label_bytes({1, 1}));
  says(Dataset::open_like(*training, folder / "test"),
       {"t10k-images-idx3-ubyte", "[1, 1, 1] bytes", "[1, 2, 3] bytes"});
}

TEST_CASE("data that may not be read are refused for good") {
  const CaseFolder folder;
  fs::permissions(folder.path(), fs::perms::all);
  put_mnist(folder, "train", 3, {0, 1, 2}, "images");
  put(folder / "text", "some words");
  fs::permissions(folder / "images/train-labels-idx1-ubyte", fs::perms::none);
  fs::permissions(folder / "text", fs::perms::none);
  const int user = ::setfsuid(65534);  // whom permissions hold for, if this is root
  const auto images = Dataset::open(folder / "images", {}), text = Dataset::open(folder / "text", {.context = 2});
  ::setfsuid(static_cast<uid_t>(user));
  for (const auto* set : {&images, &text}) {
    says(*set, {"Permission denied"});
    CHECK(set->error().code == Code::InvalidArgument);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)   // these end a program that lacks memory
TEST_CASE("images that are more than there is memory for are named") {
  const CaseFolder folder;
  constexpr int64_t kImages = 1 << 20, kBytes = kImages * 32 * 32;
  put(folder / "images.npy", npy_bytes("|u1", fmt::format("({}, 32, 32)", kImages), ""));
  fs::resize_file(folder / "images.npy", fs::file_size(folder / "images.npy") + kBytes);
  put(folder / "labels.npy", npy_bytes("|u1", "(1,)", std::string(1, '\0')));
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit before{};
  ::getrlimit(RLIMIT_AS, &before);
  // The file as it lies, and half of a copy.
  const rlimit tight{static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + kBytes + kBytes / 2), before.rlim_max};
  ::setrlimit(RLIMIT_AS, &tight);
  const auto set = Dataset::open(folder.path(), {.part = Part::Train});
  ::setrlimit(RLIMIT_AS, &before);
  REQUIRE_FALSE(set.ok());
  CHECK(set.error().code == Code::ResourceExhausted);
  CHECK(set.error().message == folder.path().native() + ": its images are more than there is memory for");
}
#endif

TEST_CASE("npy arrays of bytes and of other numbers") {
  const CaseFolder folder;
  put(folder / "images.npy", npy_bytes("<f4", "(2, 3)", raw_bytes<float>({1, 2, 3, 4, 5, 6})));
  put(folder / "labels.npy", npy_bytes("<i8", "(2,)", raw_bytes<int64_t>({1, 0})));
  const auto set = Dataset::open(folder.path(), {});
  REQUIRE(set.ok());
  CHECK(set->shape() == std::array<int64_t, 3>{1, 1, 3});
  CHECK(set->mean() == doctest::Approx(3.5));
  CHECK(set->deviation() == doctest::Approx(std::sqrt(17.5 / 6)));
  float x[3];
  int32_t label = 0;
  const uint32_t id = 1;
  set->images({&id, 1}, x, &label);
  CHECK(x[1] == doctest::Approx(1.5 / set->deviation()));

  put(folder / "labels.npy", npy_bytes("<i8", "(2,)", raw_bytes<int64_t>({1, -1})));
  says(Dataset::open(folder.path(), {}), {"labels.npy", "label -1 at index 1"});
  put(folder / "labels.npy", npy_bytes("<f4", "(2,)", raw_bytes<float>({1, 0.5f})));
  says(Dataset::open(folder.path(), {}), {"labels.npy", "0.5 at index 1 is no whole number"});
  put(folder / "labels.npy", npy_bytes("|u1", "(2, 1)", "ab"));
  says(Dataset::open(folder.path(), {}),
       {"labels.npy", "shape (2, 1), expected one number an image"});
  put(folder / "labels.npy", npy_bytes("|u1", "(2,)", "ab"));
  put(folder / "images.npy", npy_bytes("<f4", "(2, 1)", raw_bytes<float>({1, NAN})));
  says(Dataset::open(folder.path(), {}), {"images.npy", "image 1", "not finite"});
  put(folder / "images.npy", npy_bytes("|u1", "(2,)", "ab"));
  says(Dataset::open(folder.path(), {}), {"images.npy", "shape (2)"});
}

TEST_CASE("images that are all the same have nothing to divide by") {
  const CaseFolder folder;
  put(folder / "images.npy", npy_bytes("|u1", "(2, 2)", "aaaa"));
  put(folder / "labels.npy", npy_bytes("|u1", "(2,)", std::string(2, '\0')));
  const auto set = Dataset::open(folder.path(), {});
  REQUIRE(set.ok());
  CHECK(set->deviation() == 1);
  CHECK(set->classes() == 2);
  // Whose mean is no number that a double holds.
  put(folder / "labels.npy", npy_bytes("|u1", "(3,)", std::string(3, '\0')));
  for (const auto& [type, pixels] : {std::pair("|u1", std::string(12, '\x0b')),
                                     std::pair("<f4", raw_bytes(std::vector<float>(12, 0.1f)))}) {
    CAPTURE(std::string(type));
    put(folder / "images.npy", npy_bytes(type, "(3, 4)", pixels));
    CHECK(Dataset::open(folder.path(), {})->deviation() == 1);
  }
}

TEST_CASE("what is missing, empty or does not fit together is named") {
  const CaseFolder folder;
  says(Dataset::open(folder / "nothing", {}), {"nothing: No such file"});
  says(Dataset::open(folder.path(), {}), {"no file of images"});
  put(folder / "train-images-idx3-ubyte", image_bytes(3));
  says(Dataset::open(folder.path(), {}), {"no file of labels"});
  put(folder / "train-labels-idx1-ubyte", label_bytes({1, 2}));
  says(Dataset::open(folder.path(), {}),
       {"train-labels-idx1-ubyte: 2 labels", "train-images-idx3-ubyte has 3 images"});
  put_mnist(folder, "train", 0, {});
  says(Dataset::open(folder.path(), {}), {"no images"});
  put(folder / "train-images-idx3-ubyte", idx_bytes(kIdxImages, {1, 0, 5}, {}));
  put(folder / "train-labels-idx1-ubyte", label_bytes({1}));
  says(Dataset::open(folder.path(), {}), {"images without pixels"});
  says(Dataset::open(folder / "train-labels-idx1-ubyte", {}),
       {"is a file, and the model reads images"});
  says(Dataset::open(folder.path(), {.context = 4}), {"is a folder, and the model reads tokens"});
}

TEST_CASE("text of which not every sample can have a number is refused for good, before it is read") {
  const CaseFolder folder;
  put(folder / "text.txt", "");
  fs::resize_file(folder / "text.txt", (uint64_t{1} << 32) + 1);
  const auto set = Dataset::open(folder / "text.txt", {.context = 1});
  says(set, {"text.txt: 4294967296 samples are more than 4294967295"});
  CHECK(set.error().code == Code::InvalidArgument);
}

TEST_CASE("windows of tokens, each with what follows as its target") {
  const CaseFolder folder;
  put(folder / "text.txt", "abcdefgh");
  const auto set = Dataset::open(folder / "text.txt", {.context = 3});
  REQUIRE(set.ok());
  CHECK(set->kind() == Dataset::Kind::Tokens);
  CHECK(set->size() == 2);
  CHECK(set->vocabulary() == 256);
  std::vector<int32_t> inputs(6), targets(6);
  const std::vector<uint32_t> ids = {1, 0};
  REQUIRE(set->tokens(ids, inputs.data(), targets.data()).ok());
  CHECK(inputs == std::vector<int32_t>{'d', 'e', 'f', 'a', 'b', 'c'});
  CHECK(targets == std::vector<int32_t>{'e', 'f', 'g', 'b', 'c', 'd'});

  put(folder / "short.txt", "abc");
  says(Dataset::open(folder / "short.txt", {.context = 3}),
       {"3 tokens, and a context of 3 takes 4"});
  put(folder / "a.u16.bin", raw_bytes<uint16_t>({1, 2, 3, 4}));
  put(folder / "b.u16.bin", raw_bytes<uint16_t>({1, 2, 5, 4}));
  const auto training = Dataset::open(folder / "a.u16.bin", {.context = 3});
  REQUIRE(training.ok());
  CHECK(training->vocabulary() == 5);
  says(Dataset::open_like(*training, folder / "b.u16.bin"), {"b.u16.bin", "token 5 at position 2"});
  put(folder / "text", "\1\2\3\1\2\3");
  says(Dataset::open_like(*training, folder / "text"), {"text is text, a byte a token, and what is trained on is tokens of 16 bits"});
}

}  // namespace
}  // namespace dtrain::engine
