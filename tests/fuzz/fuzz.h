/* fuzz.h - what the fuzzers share: the input as a file with a name, and what is done with
 * a model that was accepted. */
#ifndef WEFT_TESTS_FUZZ_H
#define WEFT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Called by libFuzzer for each input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A file of that name with that content in a folder of this process, which is removed at
 * the end. Returns its path, the same memory for every call with the same name. */
const char *fuzz_file(const char *name, const void *data, size_t size);

/* Opens the model at a path; reads a small one that is accepted, and its tokenizer. */
void fuzz_model(const char *path);
/* Reads a vocabulary; one that is accepted must give back what it encodes. */
void fuzz_tokenizer(const char *path);

/* A safetensors file and a config.json that belong together: L=1 H=1 C=2 T=2 V=3. */
#define FUZZ_CONFIG                                                                      \
    "{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_head\":1,\"n_embd\":2,"                  \
    "\"n_positions\":2,\"vocab_size\":3}"

#endif
