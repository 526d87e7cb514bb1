// Every command that declares itself in a file of its own name: status.cc defines declare_status.
// main.cc puts them into the table.
#pragma once

#include "cli/command.h"

namespace dtrain::cli {

Run declare_check(Options& options, CommandContext& context);
Run declare_checkout(Options& options, CommandContext& context);
Run declare_compare(Options& options, CommandContext& context);
Run declare_completion(Options& options, CommandContext& context);
Run declare_daemon(Options& options, CommandContext& context);
Run declare_dial(Options& options, CommandContext& context);
Run declare_exec(Options& options, CommandContext& context);
Run declare_export(Options& options, CommandContext& context);
Run declare_hosts(Options& options, CommandContext& context);
Run declare_ids(Options& options, CommandContext& context);
Run declare_init(Options& options, CommandContext& context);
Run declare_kill(Options& options, CommandContext& context);
Run declare_logs(Options& options, CommandContext& context);
Run declare_monitor(Options& options, CommandContext& context);
Run declare_output(Options& options, CommandContext& context);
Run declare_port_forward(Options& options, CommandContext& context);
Run declare_prune(Options& options, CommandContext& context);
Run declare_rerun(Options& options, CommandContext& context);
Run declare_resume(Options& options, CommandContext& context);
Run declare_schema(Options& options, CommandContext& context);
Run declare_status(Options& options, CommandContext& context);
Run declare_suspend(Options& options, CommandContext& context);
Run declare_tensorboard(Options& options, CommandContext& context);
Run declare_train(Options& options, CommandContext& context);
Run declare_users(Options& options, CommandContext& context);
Run declare_version(Options& options, CommandContext& context);
Run declare_wait(Options& options, CommandContext& context);
Run declare_why(Options& options, CommandContext& context);
Run declare_words(Options& options, CommandContext& context);

}  // namespace dtrain::cli
