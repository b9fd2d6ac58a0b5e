// Thalweg in a program in C++: handles that free themselves, errors as exceptions, rows out of Arrow's batches.
//
//     c++ -std=c++17 example.cpp $(pkg-config --cflags --libs thalweg) && ./a.out /tmp/weather

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thalweg.h>
#include <utility>
#include <vector>

namespace {

thalweg_str_t str(std::string_view text) { return {text.data(), text.size()}; }

// Throws what a call said. The error comes by reference: arguments are made in any order, and the call in the first one makes it.
void check(thalweg_code_t code, thalweg_error_t *const &error) {
  if (code == THALWEG_OK) return;
  thalweg_str_t message = thalweg_error_message(error);
  std::string text(message.data, message.len);
  thalweg_error_free(error);
  throw std::runtime_error(text);
}

class Database {
 public:
  explicit Database(std::string_view folder) {
    thalweg_error_t *error = nullptr;
    thalweg_db_t *made = nullptr;
    check(thalweg_open(str(folder), str(""), &made, &error), error);
    db_.reset(made);
  }

  void write(const thalweg_columns_t &columns) {
    thalweg_error_t *error = nullptr;
    check(thalweg_write_columns(db_.get(), str(""), &columns, nullptr, &error), error);
  }

  // The samples of one series.
  std::vector<std::pair<int64_t, double>> range(std::string_view selector, int64_t start_ns, int64_t end_ns) const {
    thalweg_error_t *error = nullptr;
    size_t count = 0;
    check(thalweg_range_f64(db_.get(), str(""), str(selector), start_ns, end_ns, nullptr, nullptr, 0, &count, &error), error);
    std::vector<int64_t> times(count);
    std::vector<double> values(count);
    check(thalweg_range_f64(db_.get(), str(""), str(selector), start_ns, end_ns, times.data(), values.data(), count, &count, &error),
          error);
    std::vector<std::pair<int64_t, double>> samples;
    for (size_t row = 0; row < times.size() && row < count; row++) samples.emplace_back(times[row], values[row]);
    return samples;
  }

  // Calls for each batch of a query's result.
  template <typename Work>
  void sql(std::string_view text, Work work) const {
    thalweg_error_t *error = nullptr;
    ArrowArrayStream stream;
    check(thalweg_sql(db_.get(), str(""), str(text), str(""), &stream, &error), error);
    for (;;) {
      ArrowArray batch;
      if (stream.get_next(&stream, &batch) != 0) {
        std::string message = stream.get_last_error(&stream);
        stream.release(&stream);
        throw std::runtime_error(message);
      }
      if (batch.release == nullptr) break;
      work(batch);
      batch.release(&batch);
    }
    stream.release(&stream);
  }

 private:
  struct Free {
    void operator()(thalweg_db_t *db) const { thalweg_db_free(db); }
  };
  std::unique_ptr<thalweg_db_t, Free> db_;
};

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  try {
    Database db(argv[1]);
    constexpr int64_t kBegin = 1700000000000000000, kMinute = 60'000'000'000;
    std::vector<int64_t> times;
    std::vector<thalweg_str_t> stations;
    std::vector<double> celsius;
    for (int minute = 0; minute < 60; minute++) {
      for (const char *station : {"harbour", "hill"}) {
        times.push_back(kBegin + minute * kMinute);
        stations.push_back(thalweg_str(station));
        celsius.push_back((station[1] == 'a' ? 8.0 : 4.0) + minute / 10.0);
      }
    }
    thalweg_tag_t tag = {str("station"), stations.data()};
    thalweg_field_t field = {str("celsius"), THALWEG_F64, celsius.data(), nullptr};
    db.write({str("weather"), times.size(), times.data(), &tag, 1, &field, 1});

    auto samples = db.range("weather_celsius{station=\"hill\"}", kBegin, kBegin + 9 * kMinute);
    std::printf("%zu samples, the last one %.1f\n", samples.size(), samples.back().second);
    db.sql("SELECT station, max(celsius) FROM weather GROUP BY station ORDER BY station", [](const ArrowArray &batch) {
      const auto *offsets = static_cast<const int32_t *>(batch.children[0]->buffers[1]);
      const auto *names = static_cast<const char *>(batch.children[0]->buffers[2]);
      const auto *warmest = static_cast<const double *>(batch.children[1]->buffers[1]);
      for (int64_t row = 0; row < batch.length; row++) {
        std::printf("%.*s %.1f\n", offsets[row + 1] - offsets[row], names + offsets[row], warmest[row]);
      }
    });
    try {
      db.sql("SELECT * FROM nowhere", [](const ArrowArray &) {});
    } catch (const std::runtime_error &error) {
      std::printf("refused: %s\n", error.what());
    }
  } catch (const std::runtime_error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
