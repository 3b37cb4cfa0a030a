//! A headless Chromium, controlled by the DevTools protocol over two pipes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The timeout of a wait. It exceeds the duration of any step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The lock of the running browser. Concurrent browsers would slow each other down, and one test
/// measures times.
static ONE: Mutex<()> = Mutex::new(());

/// A browser process with one window.
pub(crate) struct Browser {
    process: Child,
    requests: File,
    messages: Receiver<Value>,
    session: Option<String>,
    last_request: u64,
    /// The exceptions and error messages of the console.
    errors: Vec<String>,
    folder: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Browser {
    /// Starts the browser at the path `CACHESCOPE_CHROMIUM`. If the variable is not set, prints a
    /// message and returns `None`.
    pub(crate) fn start() -> Option<Self> {
        let Ok(program) = std::env::var("CACHESCOPE_CHROMIUM") else {
            println!("skipped: CACHESCOPE_CHROMIUM names no browser");
            return None;
        };
        let turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = empty_folder();
        let (requests, answers) = (folder.join("requests"), folder.join("answers"));
        let made = Command::new("mkfifo").args([&requests, &answers]).status();
        assert!(made.unwrap().success());
        let process = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<\"$REQUESTS\" 4>\"$ANSWERS\"", "sh"])
            .args([&program, "--headless", "--no-sandbox", "--disable-gpu"])
            .args([
                "--remote-debugging-pipe",
                "--no-first-run",
                "--hide-scrollbars",
            ])
            .args(["--window-size=1440,1000", "--force-device-scale-factor=1"])
            .arg(format!("--user-data-dir={}", folder.join("user").display()))
            .env("REQUESTS", &requests)
            .env("ANSWERS", &answers)
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("log")).unwrap())
            .spawn()
            .unwrap();
        // Each `open` blocks until the shell opens the other end of the pipe. The shell opens the
        // pipes in this order.
        let requests = File::options().write(true).open(&requests).unwrap();
        let messages = receive(File::open(&answers).unwrap());
        let mut browser = Self {
            process,
            requests,
            messages,
            session: None,
            last_request: 0,
            errors: Vec::new(),
            folder,
            _turn: turn,
        };
        browser.attach();
        Some(browser)
    }

    fn attach(&mut self) {
        let target = self.call("Target.createTarget", json!({ "url": "about:blank" }));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = self.call("Target.attachToTarget", target);
        self.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            self.call(&format!("{domain}.enable"), json!({}));
        }
    }

    /// Opens an HTML page, and waits until it is completely rendered.
    pub(crate) fn open(&mut self, name: &str, html: &[u8]) {
        let path = self.folder.join(name);
        fs::write(&path, html).unwrap();
        let url = format!("file://{}", path.display());
        self.call("Page.navigate", json!({ "url": url }));
        let own = Path::new(name).display();
        self.wait_for(&format!(
            "location.href.endsWith('{own}') && !!document.body?.dataset.complete"
        ));
    }

    /// Emulates a colour scheme, "light" or "dark".
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
        self.wait_for(&format!(
            "matchMedia('(prefers-color-scheme: {scheme})').matches"
        ));
    }

    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let request =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", request);
        let exception = &answer["exceptionDetails"];
        assert!(exception.is_null(), "{expression}: {exception}");
        answer["result"]["value"].clone()
    }

    #[track_caller]
    pub(crate) fn text(&mut self, expression: &str) -> String {
        let value = self.evaluate(expression);
        value
            .as_str()
            .unwrap_or_else(|| panic!("{expression}: {value}"))
            .into()
    }

    #[track_caller]
    pub(crate) fn number(&mut self, expression: &str) -> f64 {
        let value = self.evaluate(expression);
        value
            .as_f64()
            .unwrap_or_else(|| panic!("{expression}: {value}"))
    }

    #[track_caller]
    pub(crate) fn wait_for(&mut self, condition: &str) {
        let began = Instant::now();
        while self.evaluate(condition) != Value::Bool(true) {
            self.assert_no_errors();
            assert!(began.elapsed() < PATIENCE, "in vain: {condition}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Evaluates an expression to a point of the window. The expression's value must have `x` and
    /// `y`.
    #[track_caller]
    pub(crate) fn point(&mut self, expression: &str) -> (f64, f64) {
        let point = self.evaluate(expression);
        let part = |name: &str| {
            point[name]
                .as_f64()
                .unwrap_or_else(|| panic!("{expression}: {point}"))
        };
        (part("x"), part("y"))
    }

    /// Scrolls the first element that matches a selector into view, and returns its centre.
    #[track_caller]
    pub(crate) fn middle(&mut self, selector: &str) -> (f64, f64) {
        self.point(&format!(
            "(() => {{ const found = document.querySelector('{selector}'); \
             found.scrollIntoView({{ block: 'center' }}); const box = found.getBoundingClientRect(); \
             return {{ x: box.x + box.width / 2, y: box.y + box.height / 2 }}; }})()"
        ))
    }

    pub(crate) fn hover(&mut self, (x, y): (f64, f64)) {
        self.mouse(json!({ "type": "mouseMoved", "x": x, "y": y }));
    }

    pub(crate) fn drag(&mut self, (x, y): (f64, f64)) {
        self.mouse(json!({ "type": "mouseMoved", "x": x, "y": y, "button": "left", "buttons": 1 }));
    }

    pub(crate) fn press(&mut self, (x, y): (f64, f64), clicks: u32) {
        self.mouse(json!({ "type": "mousePressed", "x": x, "y": y, "button": "left", "clickCount": clicks }));
    }

    pub(crate) fn release(&mut self, (x, y): (f64, f64), clicks: u32) {
        self.mouse(json!({ "type": "mouseReleased", "x": x, "y": y, "button": "left", "clickCount": clicks }));
    }

    pub(crate) fn click(&mut self, point: (f64, f64)) {
        self.hover(point);
        self.press(point, 1);
        self.release(point, 1);
    }

    pub(crate) fn scroll(&mut self, (x, y): (f64, f64), distance: f64) {
        self.mouse(
            json!({ "type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": distance }),
        );
    }

    fn mouse(&mut self, event: Value) {
        self.call("Input.dispatchMouseEvent", event);
    }

    pub(crate) fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    pub(crate) fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let event = json!({ "type": kind, "key": key, "code": key });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Takes a screenshot of a rectangle of the window, as a PNG. `rectangle` is an expression for
    /// the rectangle.
    pub(crate) fn screenshot(&mut self, rectangle: &str) -> Vec<u8> {
        let mut clip = self.evaluate(rectangle);
        clip["scale"] = 1.into();
        let request = json!({ "format": "png", "clip": clip });
        let answer = self.call("Page.captureScreenshot", request);
        STANDARD.decode(answer["data"].as_str().unwrap()).unwrap()
    }

    #[track_caller]
    pub(crate) fn assert_no_errors(&self) {
        assert!(self.errors.is_empty(), "{:#?}", self.errors);
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_request += 1;
        let id = self.last_request;
        let mut request = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            request["sessionId"] = session.as_str().into();
        }
        self.requests
            .write_all(format!("{request}\0").as_bytes())
            .unwrap();
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let message = message.unwrap_or_else(|error| panic!("{method}: {error}"));
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.note_errors(&message);
        }
    }

    fn note_errors(&mut self, message: &Value) {
        let is_error = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => message["params"]["type"] == "error",
            Some("Log.entryAdded") => message["params"]["entry"]["level"] == "error",
            _ => false,
        };
        if is_error {
            self.errors.push(message["params"].to_string());
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // `kill` and `wait` fail only if the browser has already exited.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Reads messages, each terminated by NUL, until the browser exits.
fn receive(answers: File) -> Receiver<Value> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut answers = BufReader::new(answers).split(0);
        while let Some(Ok(message)) = answers.next() {
            if sender
                .send(serde_json::from_slice(&message).unwrap())
                .is_err()
            {
                return;
            }
        }
    });
    receiver
}

fn empty_folder() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("page-{}-{number}", std::process::id());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}
