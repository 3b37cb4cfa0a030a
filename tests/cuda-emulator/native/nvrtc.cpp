// NVRTC, whose compiler is g++: the program's text with a header that supplies what CUDA has built in.
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "image.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

extern char** environ;
extern "C" int emulator_enter(const char* name);
extern "C" int emulator_clock_on();
extern "C" int emulator_await_meeting();

using nvrtcResult = int;
enum : nvrtcResult { OK = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6, INTERNAL = 11 };

struct Program {
    std::string text, name, log, library;
};

#define BEGIN(name) \
    if (emulator_enter(#name)) return INTERNAL

namespace {

// Where this library lies, and the headers with it.
std::string folder() {
    Dl_info info;
    if (!dladdr((void*)&folder, &info) || !info.dli_fname) return ".";
    char resolved[PATH_MAX];
    std::string path = realpath(info.dli_fname, resolved) ? resolved : info.dli_fname;
    size_t slash = path.rfind('/');
    return slash == std::string::npos ? "." : path.substr(0, slash);
}

// The text without comments, of the same length.
std::string without_comments(const std::string& text) {
    std::string bare = text;
    for (size_t i = 0; i + 1 < bare.size(); ++i) {
        if (bare[i] == '/' && bare[i + 1] == '/')
            for (; i < bare.size() && bare[i] != '\n'; ++i) bare[i] = ' ';
        else if (bare[i] == '/' && bare[i + 1] == '*') {
            size_t end = bare.find("*/", i + 2);
            end = end == std::string::npos ? bare.size() : end + 2;
            for (; i < end; ++i)
                if (bare[i] != '\n') bare[i] = ' ';
            --i;
        }
    }
    return bare;
}

std::set<std::string> names(const std::string& text, const char* expression) {
    std::set<std::string> found;
    std::regex pattern(expression);
    for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) found.insert((*at)[1]);
    return found;
}

std::string whole(const std::string& text, const std::string& name) {
    std::string bare = without_comments(text);
    std::ostringstream out;
    out << "#include \"" << folder() << "/kernel.hpp\"\n#line 1 \"" << name << "\"\n";
    // Dynamic shared memory is one place under every name that is declared for it.
    out << std::regex_replace(text, std::regex("extern\\s+__shared__"), "extern") << "\n";
    auto dynamic = names(bare, "extern\\s+__shared__[^;]*?\\b(\\w+)\\s*\\[\\s*\\]");
    if (dynamic.empty()) {
        out << "EMULATED_MODULE(nullptr, 0)\n";
    } else {
        out << "EMULATED_DYNAMIC_MODULE\n";
        for (auto& dynamic_name : dynamic) out << "asm(\".globl " << dynamic_name << "\\n.hidden " << dynamic_name << "\\n.set " << dynamic_name << ", emulator_dynamic\");\n";
    }
    for (auto& kernel : names(bare, "__global__\\s+(?:__launch_bounds__\\s*\\([^)]*\\)\\s*)?void\\s+(?:__launch_bounds__\\s*\\([^)]*\\)\\s*)?(\\w+)\\s*\\("))
        out << "EMULATED_KERNEL(" << kernel << ")\n";
    return out.str();
}

bool read_all(const std::string& path, std::string& bytes) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return false;
    bytes.assign(std::istreambuf_iterator<char>(file), {});
    return true;
}

// Runs the compiler; its outcome, and what it wrote to `log`.
int run(const std::vector<std::string>& arguments, const std::string& log) {
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    std::vector<char*> environment;
    for (char** entry = environ; *entry; ++entry)
        if (strncmp(*entry, "LD_PRELOAD=", 11) != 0) environment.push_back(*entry);
    environment.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child;
    int failed = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    if (failed) return -1;
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool known_option(const std::string& option) {
    static const char* known[] = {"--gpu-architecture=", "-arch=", "--std=", "-std=", "--fmad=", "-fmad=", "-default-device",
                                  "--device-as-default-execution-space", "-D", "--define-macro=", "-I", "--include-path=",
                                  "--use_fast_math", "-lineinfo", "--generate-line-info", "--prec-div=", "--prec-sqrt=",
                                  "--ftz=", "--maxrregcount=", "-w", "--disable-warnings", "--restrict"};
    for (const char* start : known)
        if (option.compare(0, strlen(start), start) == 0) return true;
    return false;
}

}  // namespace

EXPORT nvrtcResult nvrtcVersion(int* major, int* minor) {
    BEGIN(nvrtcVersion);
    const char* text = getenv("CACHESCOPE_EMULATOR_NVRTC");
    int version = text && *text ? atoi(text) : 12040;
    *major = version / 1000, *minor = version % 1000 / 10;
    return OK;
}

EXPORT const char* nvrtcGetErrorString(nvrtcResult result) {
    switch (result) {
        case OK: return "NVRTC_SUCCESS";
        case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
        case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
        case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
        case COMPILATION: return "NVRTC_ERROR_COMPILATION";
        case INTERNAL: return "NVRTC_ERROR_INTERNAL_ERROR";
        default: return "NVRTC_ERROR unknown";
    }
}

EXPORT nvrtcResult nvrtcCreateProgram(Program** program, const char* text, const char* name, int headers,
                                      const char* const*, const char* const*) {
    BEGIN(nvrtcCreateProgram);
    if (!text || headers) return INVALID_INPUT;
    *program = new Program{text, name ? name : "default_program", "", ""};
    return OK;
}

EXPORT nvrtcResult nvrtcDestroyProgram(Program** program) {
    BEGIN(nvrtcDestroyProgram);
    if (!program || !*program) return INVALID_PROGRAM;
    delete *program;
    *program = nullptr;
    return OK;
}

EXPORT nvrtcResult nvrtcCompileProgram(Program* program, int count, const char* const* options) {
    BEGIN(nvrtcCompileProgram);
    if (!program) return INVALID_PROGRAM;
    if (!emulator_await_meeting()) {
        program->log = "no other compilation began meanwhile";
        return COMPILATION;
    }
    std::vector<std::string> arguments{"g++", "-x", "c++", "-std=c++17", "-Og", "-ffp-contract=off", "-fno-strict-aliasing",
                                       "-w", "-fPIC", "-shared", "-nostdlib", "-fno-exceptions", "-fno-rtti",
                                       "-fno-asynchronous-unwind-tables", "-fvisibility=hidden", "-fno-gnu-unique", "-fno-ident", "-fno-math-errno", "-fwrapv",
                                       "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error", "-pipe"};
    for (int i = 0; i < count; ++i) {
        std::string option = options[i];
        if (!known_option(option)) {
            program->log = "nvrtc: error: unrecognized option " + option + " found";
            return INVALID_OPTION;
        }
        if (option.compare(0, 2, "-D") == 0) arguments.push_back(option);
        if (option.compare(0, 15, "--define-macro=") == 0) arguments.push_back("-D" + option.substr(15));
    }
    if (emulator_clock_on()) {
        arguments.insert(arguments.end(), {"-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0", "-DEMULATED_TRAFFIC"});
    }
    const char* temporary = getenv("TMPDIR");
    std::string place = std::string(temporary ? temporary : "/tmp") + "/emulated-nvrtc-XXXXXX";
    if (!mkdtemp(&place[0])) return INTERNAL;
    std::string source = place + "/kernel.cu", library = place + "/kernel.so", log = place + "/log";
    std::ofstream(source) << whole(program->text, program->name);
    arguments.insert(arguments.end(), {"-o", library, source});
    int outcome = run(arguments, log);
    read_all(log, program->log);
    bool compiled = outcome == 0 && read_all(library, program->library);
    if (const char* keep = getenv("CACHESCOPE_EMULATOR_KEEP"); !keep || !*keep) {
        for (auto& path : {source, library, log}) unlink(path.c_str());
        rmdir(place.c_str());
    }
    if (compiled) return OK;
    if (outcome == -1) program->log += "g++ could not be run";
    return COMPILATION;
}

static const int ARCHITECTURES[] = {50, 60, 70, 75, 80, 86, 89, 90};

EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
    BEGIN(nvrtcGetNumSupportedArchs);
    *count = (int)(sizeof ARCHITECTURES / sizeof *ARCHITECTURES);
    return OK;
}

EXPORT nvrtcResult nvrtcGetSupportedArchs(int* numbers) {
    BEGIN(nvrtcGetSupportedArchs);
    memcpy(numbers, ARCHITECTURES, sizeof ARCHITECTURES);
    return OK;
}

static nvrtcResult size_of(Program* program, size_t* bytes, const std::string& image) {
    if (!program || program->library.empty()) return INVALID_PROGRAM;
    *bytes = image.size();
    return OK;
}

static nvrtcResult copy_of(Program* program, char* target, const std::string& image) {
    if (!program || program->library.empty()) return INVALID_PROGRAM;
    memcpy(target, image.data(), image.size());
    return OK;
}

EXPORT nvrtcResult nvrtcGetCUBINSize(Program* program, size_t* bytes) {
    BEGIN(nvrtcGetCUBINSize);
    return size_of(program, bytes, cubin_of(program->library));
}

EXPORT nvrtcResult nvrtcGetCUBIN(Program* program, char* target) {
    BEGIN(nvrtcGetCUBIN);
    return copy_of(program, target, cubin_of(program->library));
}

// With the zero byte at the end, as NVRTC counts it.
EXPORT nvrtcResult nvrtcGetPTXSize(Program* program, size_t* bytes) {
    BEGIN(nvrtcGetPTXSize);
    return size_of(program, bytes, ptx_of(program->library) + '\0');
}

EXPORT nvrtcResult nvrtcGetPTX(Program* program, char* target) {
    BEGIN(nvrtcGetPTX);
    return copy_of(program, target, ptx_of(program->library) + '\0');
}

EXPORT nvrtcResult nvrtcGetProgramLogSize(Program* program, size_t* bytes) {
    BEGIN(nvrtcGetProgramLogSize);
    if (!program) return INVALID_PROGRAM;
    *bytes = program->log.size() + 1;
    return OK;
}

EXPORT nvrtcResult nvrtcGetProgramLog(Program* program, char* target) {
    BEGIN(nvrtcGetProgramLog);
    if (!program) return INVALID_PROGRAM;
    memcpy(target, program->log.c_str(), program->log.size() + 1);
    return OK;
}
