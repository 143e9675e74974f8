/* hf_config.h - the small files of a Hugging Face folder: config.json and its company.
 * Private to this module. */
#ifndef WEFT_CHECKPOINT_HF_CONFIG_H
#define WEFT_CHECKPOINT_HF_CONFIG_H

#include "base/status.h"
#include "checkpoint/checkpoint.h"

/* Reads config.json. ST_FORMAT, naming key, found and needed, for a model that is no
 * GPT-2 or computes something else than ours. */
MUST_USE enum status hf_config_read(const char *path, struct shape *out);

/* Writes config.json, generation_config.json and, with a tokenizer, vocab.json,
 * merges.txt, tokenizer_config.json and special_tokens_map.json into a folder. */
MUST_USE enum status hf_files_write(const char *folder, const struct shape *s,
                                    const struct model_write_options *o);

#endif
