#include "daemon/authority.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <array>
#include <memory>
#include <vector>

#include "schema/access_key.h"
#include "schema/small_file.h"

namespace dtrain::daemon {

namespace {

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* what) const {
    kFree(what);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using X509Pointer = std::unique_ptr<X509, Freed<X509_free>>;
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>>;

// Clocks of hosts differ, by years where a battery is empty; a key is given up by `hosts revoke`, not by its age.
constexpr long kYear = 365L * 86'400, kValidFrom = -30 * kYear, kValidTo = 30 * kYear;
constexpr int kSerialBytes = 16;

Error openssl_error(const char* what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  return {Code::Internal, fmt::format("{}: {}", what, text.data()), ""};
}

Bio read_only(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<size_t>(size)};
}

X509Pointer parse_certificate(const std::string& pem) {
  return X509Pointer(PEM_read_bio_X509(read_only(pem).get(), nullptr, nullptr, nullptr));
}

struct Extra {
  int kind;
  const char* value;
};

struct Subject {
  std::string name;
  std::vector<Extra> extras;
};

bool add_extras(X509* certificate, X509* issuer, const std::vector<Extra>& extras) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  for (const Extra& extra : extras) {
    const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, extra.kind, extra.value));
    if (!extension || X509_add_ext(certificate, extension.get(), -1) != 1) return false;
  }
  return true;
}

bool set_serial(X509* certificate) {
  std::array<unsigned char, kSerialBytes> bytes{};
  if (RAND_bytes(bytes.data(), kSerialBytes) != 1) return false;
  const std::unique_ptr<BIGNUM, Freed<BN_free>> number(BN_bin2bn(bytes.data(), kSerialBytes, nullptr));
  return number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

// Signed by `signer` of `issuer`, or by itself where both are null.
Result<Certificate> make_certificate(const Subject& subject, X509* issuer, EVP_PKEY* signer) {
  const Key key(EVP_EC_gen("P-256"));
  const X509Pointer made(X509_new());
  if (!key || !made) return openssl_error("make a key");
  X509_NAME* const name = X509_get_subject_name(made.get());
  const auto* const text = reinterpret_cast<const unsigned char*>(subject.name.data());
  const bool good =
      X509_set_version(made.get(), X509_VERSION_3) == 1 && set_serial(made.get()) &&
      X509_gmtime_adj(X509_getm_notBefore(made.get()), kValidFrom) != nullptr &&
      X509_gmtime_adj(X509_getm_notAfter(made.get()), kValidTo) != nullptr &&
      X509_set_pubkey(made.get(), key.get()) == 1 &&
      X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8, text,
                                 static_cast<int>(subject.name.size()), -1, 0) == 1 &&
      X509_set_issuer_name(made.get(), issuer == nullptr ? name : X509_get_subject_name(issuer)) == 1 &&
      add_extras(made.get(), issuer == nullptr ? made.get() : issuer, subject.extras) &&
      X509_sign(made.get(), signer == nullptr ? key.get() : signer, EVP_sha256()) > 0;
  if (!good) return openssl_error("make a certificate");
  const Bio certificate(BIO_new(BIO_s_mem())), secret(BIO_new(BIO_s_mem()));
  if (!certificate || !secret || PEM_write_bio_X509(certificate.get(), made.get()) != 1 ||
      PEM_write_bio_PrivateKey(secret.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return openssl_error("write a certificate");
  }
  return Certificate{text_of(certificate.get()), text_of(secret.get())};
}

Result<Certificate> signed_by(const Certificate& authority, const Subject& subject) {
  const X509Pointer issuer = parse_certificate(authority.certificate);
  const Key signer(PEM_read_bio_PrivateKey(read_only(authority.secret).get(), nullptr, nullptr, nullptr));
  if (!issuer || !signer) return openssl_error("read the authority's key");
  return make_certificate(subject, issuer.get(), signer.get());
}

}  // namespace

Result<Authority> Authority::open(const std::filesystem::path& file) {
  TRY(const auto kept, read_file(file));
  if (!kept) {
    const Subject subject{"dtrain",
                          {{NID_basic_constraints, "critical,CA:TRUE"},
                           {NID_key_usage, "critical,keyCertSign"},
                           {NID_subject_key_identifier, "hash"}}};
    TRY(Certificate made, make_certificate(subject, nullptr, nullptr));
    TRY(replace_file(file, made.certificate + made.secret));
    return Authority(std::move(made));
  }
  const size_t secret = kept->find("-----BEGIN PRIVATE KEY");
  Authority opened(Certificate{kept->substr(0, secret), secret == std::string::npos ? "" : kept->substr(secret)});
  if (const auto usable = opened.for_daemon(); !usable.ok()) {
    return Error{Code::DataLoss, fmt::format("{} is damaged: {}", file.string(), usable.error().message),
                 "without it no host can join that was invited before: remove it, and invite them again"};
  }
  return opened;
}

Result<Certificate> Authority::for_daemon() const {
  static const std::string alias = fmt::format("DNS:{}", kDaemonCertificateName);
  return signed_by(own_, {kDaemonCertificateName,
                          {{NID_basic_constraints, "critical,CA:FALSE"},
                           {NID_ext_key_usage, "serverAuth"},
                           {NID_subject_alt_name, alias.c_str()}}});
}

Result<Certificate> Authority::for_holder(const std::string& name) const {
  return signed_by(own_, {name, {{NID_basic_constraints, "critical,CA:FALSE"}, {NID_ext_key_usage, "clientAuth"}}});
}

std::string fingerprint(const std::string& certificate) {
  const X509Pointer parsed = parse_certificate(certificate);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (!parsed || X509_digest(parsed.get(), EVP_sha256(), digest.data(), &size) != 1) return {};
  std::string hex;
  for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

std::string common_name(const std::string& certificate) {
  const X509Pointer parsed = parse_certificate(certificate);
  if (!parsed) return {};
  const X509_NAME* const subject = X509_get_subject_name(parsed.get());
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return {};
  const ASN1_STRING* const name = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at));
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(name)), static_cast<size_t>(ASN1_STRING_length(name))};
}

}  // namespace dtrain::daemon
